/* harness.c: every target (instruction set) that this processor can run, against the scalar target, bit for bit; and
 * the scalar target against slow double and int64 references.  No Python: the same program runs natively and under
 * qemu.
 *
 *   harness            all supported targets, one line each, then the totals
 *   harness TARGET...  these targets only; exit 3 if one is not supported
 *   harness --digest ...   the digests alone: the scalar target is not computed with the others, nor are references
 *   harness --list     the targets this build knows, with the supported ones marked, then the best
 *
 * Every input and output buffer ends at an inaccessible page, so reading or writing past the end stops the program.
 * The digest covers all outputs; it is the same number on every architecture. */
#define _DEFAULT_SOURCE
#include "kernels.h"
#include "numbers.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct kernels *S = &kernels_scalar, *K; /* S is NULL with --digest */
static long passed, failed;
static uint64_t digest;

/* ---- buffers -------------------------------------------------------------------------------------------------- */

enum { MAX_BUFFER = 64 };
static struct {
    void *map;
    size_t size;
} buffers[MAX_BUFFER];
static int n_buffer;

static void *buffer(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page + page;
    char *map = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || n_buffer == MAX_BUFFER || mprotect(map + body, page, PROT_NONE)) {
        fprintf(stderr, "harness: no memory\n");
        exit(2);
    }
    buffers[n_buffer].map = map;
    buffers[n_buffer++].size = body + page;
    memset(map, 0xa5, body);
    return map + body - size;
}

static void free_buffers(void)
{
    while (n_buffer > 0) {
        n_buffer--;
        munmap(buffers[n_buffer].map, buffers[n_buffer].size);
    }
}

/* ---- random input ---------------------------------------------------------------------------------------------- */

static uint64_t state;

/* xorshift64*.  At most one call in an expression: the order of two would be the compiler's choice. */
static uint32_t rnd(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 32);
}

static float rnd_float(void) { return (float)((int32_t)rnd() >> 8) * 0x1p-23f; } /* [-1, 1) */

enum { UNIFORM, ZEROS, DENORMALS, EQUAL, TIES, HUGE_VALUES, TINY, PEAK, N_FLOATS };

static void fill_float(float *x, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i++)
        switch (kind) {
        case UNIFORM: x[i] = rnd_float() * 3.0f; break;
        case ZEROS: x[i] = rnd() & 1 ? 0.0f : -0.0f; break;
        case DENORMALS: x[i] = bits_float(rnd() & 0x800003ffu); break;
        case EQUAL: x[i] = -0.7f; break;
        case TIES: x[i] = (float)((int)(rnd() % 255) - 127) + 0.5f; break;
        case HUGE_VALUES: x[i] = rnd_float() * 1e37f; break;
        case TINY: x[i] = rnd_float() * 1e-6f; break;
        case PEAK: x[i] = i == n / 2 ? 1000.0f : rnd_float() * 1e-3f; break;
        }
    if (kind == TIES && n > 1) /* make the quantiser's scale exactly 1 */
        x[0] = 127.0f;
    if (kind == TIES)
        for (int64_t i = 1; i < n; i++)
            x[i] = x[i] > 126.5f ? 126.5f : x[i] < -126.5f ? -126.5f : x[i];
}

enum { I8_UNIFORM, I8_MAX, I8_MIN, I8_ALTERNATE, I8_ZERO, I8_EXTREMES, N_I8 };

static void fill_i8(int8_t *x, int64_t n, int kind)
{
    for (int64_t i = 0; i < n; i++)
        switch (kind) {
        case I8_UNIFORM: x[i] = (int8_t)((int)(rnd() % 255) - 127); break;
        case I8_MAX: x[i] = 127; break;
        case I8_MIN: x[i] = -127; break;
        case I8_ALTERNATE: x[i] = i & 1 ? -127 : 127; break;
        case I8_ZERO: x[i] = 0; break;
        case I8_EXTREMES: x[i] = rnd() & 1 ? -127 : 127; break;
        }
}

static void fill_codes(uint8_t *c, int64_t n, int kind)
{
    static const uint8_t constant[] = {0x00, 0x55, 0xaa, 0xff};
    for (int64_t i = 0; i < n; i++)
        if (kind < 4)
            c[i] = constant[kind];
        else if (kind == 4)
            c[i] = (uint8_t)rnd(); /* all four codes */
        else {
            uint32_t t = rnd() % 81; /* four trits */
            c[i] = (uint8_t)(t / 27 << 6 | t / 9 % 3 << 4 | t / 3 % 3 << 2 | t % 3);
        }
}

/* ---- verdicts --------------------------------------------------------------------------------------------------- */

static void verdict(int ok, const char *format, ...)
{
    if (ok) {
        passed++;
        return;
    }
    if (failed++ < 20) {
        va_list args;
        va_start(args, format);
        fprintf(stderr, "FAIL %s: ", K->name);
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
        va_end(args);
    }
}

static int same(const void *got, const void *want, size_t n)
{
    const uint8_t *p = got;
    for (size_t i = 0; i < n; i++)
        digest = (digest ^ p[i]) * 0x100000001b3ull;
    return !S || memcmp(got, want, n) == 0;
}

/* ---- ternary ---------------------------------------------------------------------------------------------------- */

/* Another way to read weights for each test: it changes no bit. */
static void another_way(void)
{
    static int n;
    kernels_choose((struct kernels_choices){1 << n % 3, n / 3 % 4, 1 << (9 + n % 7)});
    n++;
}


static void test_ternary(int64_t n_row, int64_t n_block, int64_t n_token, int codes_kind, int x_kind)
{
    another_way();
    int64_t k = n_block * TERNARY_BLOCK, ld = n_row + 3;
    uint8_t *codes = buffer((size_t)(n_row * n_block * TERNARY_BLOCK_BYTES));
    int8_t *x = buffer((size_t)(n_token * k));
    size_t n_acc = (size_t)((n_token - 1) * ld + n_row) * 4;
    int32_t *want = buffer(n_acc), *got = buffer(n_acc), *row = buffer((size_t)n_row * 4);
    fill_codes(codes, n_row * n_block * TERNARY_BLOCK_BYTES, codes_kind);
    fill_i8(x, n_token * k, x_kind);
    void *work = buffer(MATMUL_WORK((size_t)n_row));

    if (S) S->ternary_matmul(codes, n_row, n_block, x, n_token, want, ld, work);
    K->ternary_matmul(codes, n_row, n_block, x, n_token, got, ld, work);
    verdict(same(got, want, n_acc), "ternary_matmul rows %d blocks %d tokens %d codes %d x %d", (int)n_row,
            (int)n_block, (int)n_token, codes_kind, x_kind);
    K->ternary_matvec(codes, n_row, n_block, x, row);
    verdict(same(row, want, (size_t)n_row * 4), "ternary_matvec rows %d blocks %d codes %d x %d", (int)n_row,
            (int)n_block, codes_kind, x_kind);

    if (K == S) {
        int ok = 1;
        for (int64_t t = 0; t < n_token; t++)
            for (int64_t r = 0; r < n_row; r++) {
                int64_t sum = 0;
                for (int64_t i = 0; i < k; i++) {
                    uint8_t byte = codes[r * n_block * 32 + i / 128 * 32 + i % 32];
                    sum += (int64_t)(byte >> (6 - 2 * (i % 128 / 32)) & 3) * x[t * k + i];
                }
                ok &= sum == want[t * ld + r];
            }
        verdict(ok, "ternary_matmul against int64, rows %d blocks %d", (int)n_row, (int)n_block);
    }
    free_buffers();
}

static void all_ternary(void)
{
    for (int64_t n_row = 1; n_row <= 9; n_row++)
        for (int64_t n_block = 1; n_block <= 9; n_block++)
            test_ternary(n_row, n_block, 1 + (n_row * 5 + n_block) % 9, 4 + (int)(rnd() & 1), I8_UNIFORM);
    for (int64_t n_token = 1; n_token <= 19; n_token++)
        test_ternary(5, 3, n_token, 4, I8_UNIFORM);
    for (int codes = 0; codes < 6; codes++) /* every lane at its bound, past every flush */
        for (int x = 0; x < N_I8; x++) {
            test_ternary(6, 12, 9, codes, x);
            test_ternary(5, 26, 3, codes, x);
        }
    for (int x = 0; x < N_I8; x++)
        test_ternary(12, 2, 1, 3 + x % 3, x); /* whole fours of rows of two blocks */
    test_ternary(67, 20, 17, 5, I8_UNIFORM);
    test_ternary(9, 54, 11, 5, I8_UNIFORM); /* K = 6912 */
    test_ternary(4, 180, 8, 3, I8_MAX);     /* K = 23040 */
    test_ternary(33, 49, 16, 5, I8_EXTREMES);
    for (int x = 0; x < N_I8; x++) { /* many rows and tokens (lookup.inc.h): sums at the bounds of int16 and beyond */
        test_ternary(259, 5, 19, 0, x);
        test_ternary(256, 5, 16, 2, x);
        test_ternary(261, 4, 33, 5, x);
    }
    test_ternary(330, 11, 48, 5, I8_UNIFORM); /* tiles that are left and taken up again (lookup.inc.h) */
    test_ternary(257, 3, 27, 4, I8_UNIFORM); /* codes 3 */
    test_ternary(1731, 2, 17, 5, I8_UNIFORM); /* more rows than are looked up at once */
    test_ternary(3457, 1, 16, 5, I8_UNIFORM);
    test_ternary(258, 1, 155, 5, I8_UNIFORM);
    test_ternary(300, 11, 16, 5, I8_EXTREMES);
    test_ternary(131, 12, 33, 5, I8_EXTREMES);
    test_ternary(11, 9, 131, 4, I8_UNIFORM); /* few rows and many tokens (packs.inc.h): chunks of two blocks */
    test_ternary(8, 13, 24, 3, I8_MAX);
}

/* ---- scales per group ------------------------------------------------------------------------------------------- */

/* NaN has many bits and targets make different ones. */
static void plain_nan(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = isnan(x[i]) ? bits_float(0x7fc00000u) : x[i];
}

enum { D_USUAL, D_SUBNORMAL, D_NEGATIVE, D_ZERO, D_LARGEST, D_ANY, N_D };

static uint16_t group_scale(int kind)
{
    switch (kind) {
    case D_USUAL: return float_half(0.02f + 0.01f * rnd_float());
    case D_SUBNORMAL: return (uint16_t)(rnd() & 0x3ff);
    case D_NEGATIVE: return (uint16_t)(float_half(0.5f + 0.4f * rnd_float()) | 0x8000);
    case D_ZERO: return (uint16_t)(rnd() & 0x8000);
    case D_LARGEST: return 0x7bff;
    default: return (uint16_t)rnd(); /* infinities and NaN among them */
    }
}

/* The same rows as panels: laid out as kernels.h says, there and back, and the same bits, for any range of rows. */
static void test_panels(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, int64_t n_token,
                        const int8_t *q, const float *d, const int32_t *sum)
{
    const int64_t n_panel = (n_row + PANEL_ROWS - 1) / PANEL_ROWS, ld = n_row + 1;
    const size_t n_out = (size_t)(n_token * ld);
    uint8_t *panels = buffer((size_t)(n_panel * n_group) * PANEL_BYTES(GROUP));
    const size_t n_code = (size_t)(n_row * n_group) * GROUP, n_scale = (size_t)(n_row * n_group);
    int8_t *codes = buffer(n_code), *back = buffer(n_code);
    float *scales = buffer(n_scale * 4), *scales_back = buffer(n_scale * 4);
    float *want = buffer(n_out * 4), *got = buffer(n_out * 4);
    void *work = buffer(GROUP_WORK);
    int ok = 1;
    pack_panels(rows, group_bytes, n_row, n_group, panels);
    unpack_groups(rows, group_bytes, n_row, n_group * GROUP, codes, scales);
    unpack_plane_panels(panels, 1, n_row, n_group * GROUP, GROUP, back, scales_back);
    ok &= memcmp(codes, back, n_code) == 0 && memcmp(scales, scales_back, n_scale * 4) == 0;
    for (int64_t r = 0; K == S && r < n_panel * PANEL_ROWS; r++)
        for (int64_t i = 0; i < n_group * GROUP; i++) {
            const int64_t nth = r / PANEL_ROWS * n_group + i / GROUP;
            const uint8_t *panel = panels + nth * PANEL_BYTES(GROUP) + 2 * PANEL_ROWS;
            const uint8_t *group = rows + (r * n_group + i / GROUP) * group_bytes;
            int64_t at = i % GROUP, p = at % 32; /* q[at] of the group: element 4p + at / 32 */
            const uint8_t *scale = panel - 2 * PANEL_ROWS + r % PANEL_ROWS * 2;
            ok &= scale[0] == (r < n_row ? group[0] : 0) && scale[1] == (r < n_row ? group[1] : 0);
            int code = panel[at / 4 * 64 + r % 16 * 4 + at % 4] >> r % PANEL_ROWS / 16 * 2 & 3;
            ok &= code == (r < n_row ? group[p < 16 ? 2 + p : p - 32 + group_bytes] >> at / 32 * 2 & 3 : 0);
        }
    /* files hold panels: the same bytes on every architecture */
    ok &= same(panels, panels, (size_t)(n_panel * n_group) * PANEL_BYTES(GROUP));
    verdict(ok, "pack_panels of %d, rows %d groups %d", group_bytes, (int)n_row, (int)n_group);
    for (int add = 0; add < 2; add++)
        for (int64_t row0 = 0; row0 < n_row; row0 += 1 + n_row / 2) {
            const int64_t row1 = n_row - (row0 > 0 || n_row < 3 ? 0 : n_row % 3);
            for (size_t i = 0; i < n_out; i++)
                want[i] = got[i] = (float)i;
            if (S)
                S->group_matmul(rows + row0 * n_group * group_bytes, group_bytes, row1 - row0, n_group, q, d, sum,
                                n_token, add, want, ld, work);
            K->panel_matmul(panels, row0, row1, n_group, GROUP, 1, q, d, sum, n_token, add, got, ld);
            plain_nan(want, (int64_t)n_out);
            plain_nan(got, (int64_t)n_out);
            verdict(same(got, want, n_out * 4), "panel_matmul of rows %d to %d of %d, groups %d tokens %d", (int)row0,
                    (int)row1, (int)n_row, (int)n_group, (int)n_token);
        }
}

static void test_groups(int64_t n_row, int64_t n_group, int64_t n_token, int codes_kind, int d_kind, int x_kind)
{
    another_way();
    int64_t k = n_group * GROUP, ld = n_row + 3;
    size_t n_out = (size_t)((n_token - 1) * ld + n_row);
    int8_t *q = buffer((size_t)(n_token * k));
    float *d = buffer((size_t)(n_token * n_group) * 4), *want = buffer(n_out * 4), *got = buffer(n_out * 4);
    int32_t *sum = buffer((size_t)(n_token * n_group) * 4);
    void *work = buffer(GROUP_WORK);
    fill_i8(q, n_token * k, x_kind);
    for (int64_t g = 0; g < n_token * n_group; g++) {
        sum[g] = 0;
        for (int e = 0; e < GROUP; e++)
            sum[g] += q[g * GROUP + e];
        d[g] = d_kind == D_LARGEST ? 3e38f : d_kind == D_ANY ? bits_float(rnd()) : 0.01f + 0.009f * rnd_float();
    }
    for (int group_bytes = GROUP_WHOLE; group_bytes <= GROUP_PAIR; group_bytes += GROUP_PAIR - GROUP_WHOLE) {
        uint8_t *rows = buffer((size_t)(n_row * n_group * group_bytes));
        fill_codes(rows, n_row * n_group * group_bytes, codes_kind);
        for (int64_t i = 0; i < n_row * n_group; i++) {
            uint16_t half = group_scale(d_kind);
            memcpy(rows + i * group_bytes, &half, 2);
            if (group_bytes == GROUP_PAIR)
                memcpy(rows + i * group_bytes + GROUP_PAIR / 2, &half, 2);
        }
        for (int add = 0; add < 2; add++) {
            for (size_t i = 0; i < n_out; i++)
                want[i] = got[i] = (float)i;
            if (S) S->group_matmul(rows, group_bytes, n_row, n_group, q, d, sum, n_token, add, want, ld, work);
            K->group_matmul(rows, group_bytes, n_row, n_group, q, d, sum, n_token, add, got, ld, work);
            plain_nan(want, (int64_t)n_out);
            plain_nan(got, (int64_t)n_out);
            verdict(same(got, want, n_out * 4), "group_matmul of %d, rows %d groups %d tokens %d codes %d d %d x %d",
                    group_bytes, (int)n_row, (int)n_group, (int)n_token, codes_kind, d_kind, x_kind);
        }
        for (int64_t t = 0; t < n_token; t += n_token > 1 ? n_token - 1 : 1) { /* alone as in a batch */
            K->group_matmul(rows, group_bytes, n_row, n_group, q + t * k, d + t * n_group, sum + t * n_group, 1, 0, got,
                            ld, NULL);
            if (S)
                S->group_matmul(rows, group_bytes, n_row, n_group, q + t * k, d + t * n_group, sum + t * n_group, 1, 0,
                                want, ld, NULL);
            plain_nan(want, n_row);
            plain_nan(got, n_row);
            verdict(same(got, want, (size_t)n_row * 4), "group_matmul of %d, token %d alone, rows %d groups %d",
                    group_bytes, (int)t, (int)n_row, (int)n_group);
        }
        test_panels(rows, group_bytes, n_row, n_group, n_token, q, d, sum);
        if (K == S && d_kind == D_USUAL) {
            int ok = 1;
            if (S) S->group_matmul(rows, group_bytes, n_row, n_group, q, d, sum, n_token, 0, want, ld, work);
            for (int64_t t = 0; t < n_token; t++)
                for (int64_t r = 0; r < n_row; r++) {
                    double y = 0.0, size = 0.0;
                    for (int64_t i = 0; i < k; i++) {
                        const uint8_t *group = rows + (r * n_group + i / GROUP) * group_bytes;
                        uint16_t half;
                        memcpy(&half, group, 2);
                        int64_t e = i % GROUP, at = 2 + e / 4 + (e >= 64 ? group_bytes - GROUP_WHOLE : 0);
                        int w = (group[at] >> 2 * (e % 4) & 3) - 1;
                        double p = w * (double)half_float(half) * d[t * n_group + i / GROUP] *
                                   q[t * k + i / GROUP * GROUP + e % 4 * 32 + e / 4];
                        y += p;
                        size += fabs(p);
                    }
                    ok &= fabs(want[t * ld + r] - y) <= 1e-6 * size;
                }
            verdict(ok, "group_matmul against double, rows %d groups %d", (int)n_row, (int)n_group);
        }
    }
    free_buffers();
}

/* Sums of n_plane matrices in groups of `group`: as kernels.h lays them out, for any range of rows.  bad: scales that
 * are any half, and codes 3, which a damaged file can hold. */
static void test_ternary_planes(int64_t n_row, int64_t n_group, int group, int n_plane, int64_t n_token, int bad,
                                int x_kind)
{
    another_way();
    const int64_t k = n_group * group, n_panel = (n_row + PANEL_ROWS - 1) / PANEL_ROWS, ld = n_row + 1;
    const size_t n_weight = (size_t)(n_plane * n_row * k), n_scale = (size_t)(n_plane * n_row * n_group);
    const size_t n_byte = (size_t)(n_panel * n_group * n_plane) * PANEL_BYTES(group), n_out = (size_t)(n_token * ld);
    int8_t *w = buffer(n_weight), *back = buffer(n_weight), *q = buffer((size_t)(n_token * k));
    float *scale = buffer(n_scale * 4), *again = buffer(n_scale * 4), *d = buffer((size_t)(n_token * n_group) * 4);
    float *want = buffer(n_out * 4), *got = buffer(n_out * 4);
    int32_t *sum = buffer((size_t)(n_token * n_group) * 4);
    uint8_t *panels = buffer(n_byte);
    int ok = 1;
    for (size_t i = 0; i < n_weight; i++)
        w[i] = (int8_t)((int)(rnd() % 3) - 1);
    for (size_t i = 0; i < n_scale; i++)
        scale[i] = half_float(group_scale(D_USUAL));
    fill_i8(q, n_token * k, x_kind);
    for (int64_t g = 0; g < n_token * n_group; g++) {
        sum[g] = 0;
        for (int e = 0; e < group; e++)
            sum[g] += q[g * group + e];
        d[g] = 0.01f + 0.009f * rnd_float();
    }
    pack_plane_panels(w, scale, n_plane, n_row, k, group, panels);
    unpack_plane_panels(panels, n_plane, n_row, k, group, back, again);
    ok = !memcmp(w, back, n_weight) && !memcmp(scale, again, n_scale * 4);
    for (int64_t r = n_row; K == S && r < n_panel * PANEL_ROWS; r++) /* rows beyond the last are zeros */
        for (int64_t g = 0; g < n_group * n_plane; g++) {
            const uint8_t *panel = panels + (r / PANEL_ROWS * n_group * n_plane + g) * PANEL_BYTES(group);
            ok &= panel[r % 64 * 2] == 0 && panel[r % 64 * 2 + 1] == 0;
            for (int e = 0; e < group; e++)
                ok &= (panel[2 * PANEL_ROWS + e / 4 * 64 + r % 16 * 4 + e % 4] >> r % 64 / 16 * 2 & 3) == 0;
        }
    ok &= same(panels, panels, n_byte); /* files hold them: the same bytes on every architecture */
    verdict(ok, "pack_plane_panels of %d x %d, rows %d groups %d", n_plane, group, (int)n_row, (int)n_group);
    if (K == S) {
        if (S) S->panel_matmul(panels, 0, n_row, n_group, group, n_plane, q, d, sum, n_token, 0, want, ld);
        for (int64_t t = 0; t < n_token; t++)
            for (int64_t r = 0; r < n_row; r++) {
                double y = 0.0, size = 0.0;
                for (int64_t p = 0; p < n_plane; p++)
                    for (int64_t i = 0; i < k; i++) {
                        const int at = place_in_group(group, (int)(i % group));
                        const double v = (double)w[(p * n_row + r) * k + i] *
                                         (double)scale[((p * n_row + r) * k + i) / group] *
                                         (double)d[t * n_group + i / group] * q[t * k + i / group * group + at];
                        y += v;
                        size += fabs(v);
                    }
                ok &= fabs(want[t * ld + r] - y) <= 1e-6 * size;
            }
        verdict(ok, "panel_matmul of %d planes of %d against double, rows %d", n_plane, group, (int)n_row);
    }
    for (size_t i = 0; bad && i < n_byte; i++)
        panels[i] = (uint8_t)rnd();
    for (int add = 0; add < 2; add++)
        for (int64_t row0 = 0; row0 < n_row; row0 += 1 + n_row / 2) {
            const int64_t row1 = n_row - (row0 > 0 || n_row < 3 ? 0 : n_row % 3);
            for (size_t i = 0; i < n_out; i++)
                want[i] = got[i] = (float)i;
            if (S)
                S->panel_matmul(panels, row0, row1, n_group, group, n_plane, q, d, sum, n_token, add, want,
                                ld);
            K->panel_matmul(panels, row0, row1, n_group, group, n_plane, q, d, sum, n_token, add, got, ld);
            plain_nan(want, (int64_t)n_out);
            plain_nan(got, (int64_t)n_out);
            verdict(same(got, want, n_out * 4), "panel_matmul of %d planes of %d, rows %d to %d of %d, tokens %d",
                    n_plane, group, (int)row0, (int)row1, (int)n_row, (int)n_token);
        }
    free_buffers();
}

static void test_quantize_groups(int n, int group, int kind)
{
    int n_group = (n + group - 1) / group, ok = 1;
    float *x = buffer((size_t)n * 4), *want_d = buffer((size_t)n_group * 4), *got_d = buffer((size_t)n_group * 4);
    int8_t *want = buffer((size_t)(n_group * group)), *got = buffer((size_t)(n_group * group));
    int32_t *want_sum = buffer((size_t)n_group * 4), *got_sum = buffer((size_t)n_group * 4);
    if (kind < N_FLOATS)
        fill_float(x, n, kind);
    else
        for (int i = 0; i < n; i++) /* infinities and NaN among them */
            x[i] = i % 50 == 49 ? (i % 3 ? INFINITY : NAN) : kind == N_FLOATS ? bits_float(rnd()) : rnd_float();
    if (S) S->quantize_groups(x, n, group, want, want_d, want_sum);
    K->quantize_groups(x, n, group, got, got_d, got_sum);
    verdict(same(got, want, (size_t)(n_group * group)) && same(got_d, want_d, (size_t)n_group * 4) &&
                same(got_sum, want_sum, (size_t)n_group * 4),
            "quantize_groups of %d, n %d kind %d", group, n, kind);
    for (int g = 0; K == S && kind < N_FLOATS && g < n_group; g++) {
        float m = 0.0f;
        int32_t sum = 0;
        for (int i = g * group; i < n && i < (g + 1) * group; i++)
            m = fmaxf(m, fabsf(x[i]));
        for (int e = 0; e < group; e++) {
            int8_t code = want[g * group + (group == 128 ? e % 4 * 32 + e / 4 : e)];
            float at = g * group + e < n ? x[g * group + e] : 0.0f;
            ok &= code == (int8_t)nearbyintf(fminf(fmaxf(at * (127.0f / fmaxf(m, 1e-30f)), -127.0f), 127.0f));
            sum += code;
        }
        ok &= sum == want_sum[g] && want_d[g] == m / 127.0f;
    }
    verdict(ok, "quantize_groups of %d against nearbyint, n %d kind %d", group, n, kind);
    free_buffers();
}

static void all_ternary_planes(void)
{
    for (int group = 32; group <= 128; group *= 2) {
        for (int n_plane = 1; n_plane <= MOST_PLANES; n_plane++)
            for (int n_token = 1; n_token <= 17; n_token += n_token < 9 ? 1 : 8)
                test_ternary_planes(60 + n_token, 3 + n_token % 4, group, n_plane, n_token, 0, I8_UNIFORM);
        for (int n_row = 1; n_row <= 67; n_row += 6)
            test_ternary_planes(n_row, 18, group, 3, 1 + n_row % 9, n_row % 2, I8_UNIFORM);
        for (int x = 0; x < N_I8; x++) /* every lane at its bound, code 3 among them */
            for (int n_token = 1; n_token <= 9; n_token += 4)
                for (int bad = 0; bad < 2; bad++)
                    test_ternary_planes(65, 2, group, 2, n_token, bad, x);
        test_ternary_planes(576, 18, group, 3, 1, 0, I8_UNIFORM);
        for (int kind = 0; kind < N_FLOATS + 2; kind++)
            for (int n = 1; n <= 400; n += n < 8 ? 1 : n < 120 || n > 135 ? 31 : 1)
                test_quantize_groups(n, group, kind);
    }
}

static void all_groups(void)
{
    for (int n_row = 1; n_row <= 35; n_row++)
        test_groups(n_row, 1 + n_row % 5, 1 + n_row * 7 % 10, 4 + n_row % 2, D_USUAL, I8_UNIFORM);
    for (int n_token = 1; n_token <= 35; n_token++)
        test_groups(19, 3, n_token, 4, D_USUAL, I8_UNIFORM);
    for (int codes = 0; codes < 6; codes++) /* every lane at its bound */
        for (int x = 0; x < N_I8; x++)
            for (int n_token = 1; n_token <= 17; n_token += 8)
                test_groups(17, 2, n_token, codes, codes == x ? D_NEGATIVE : D_USUAL, x);
    for (int d = 0; d < N_D; d++)
        for (int n_token = 1; n_token <= 25; n_token += 6)
            test_groups(37, 3, n_token, 4, d, I8_UNIFORM);
    for (int n_group = 7; n_group <= 25; n_group++) /* what is taken at a time, and the rest */
        test_groups(33, n_group, n_group % 3 * 9 + 1, 5, D_USUAL, I8_UNIFORM);
    test_groups(16, 17, 131, 5, D_USUAL, I8_EXTREMES);
    test_groups(40, 4, 259, 5, D_USUAL, I8_UNIFORM);
    test_groups(130, 48, 16, 5, D_USUAL, I8_UNIFORM); /* K = 6144 */
    test_groups(64, 3, 15, 5, D_USUAL, I8_UNIFORM);   /* whole panels */
    test_groups(192, 2, 1, 5, D_USUAL, I8_UNIFORM);
    test_groups(5, 96, 9, 3, D_USUAL, I8_MAX);        /* K = 12288 */
}

/* ---- activations ------------------------------------------------------------------------------------------------ */

static const int lengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 96, 100, 127, 128,
                              200, 1031, 2560};

enum { N_LENGTH = sizeof lengths / sizeof lengths[0] };

static void test_quantize(int n, int kind)
{
    int n_pad = (n + 127) / 128 * 128;
    float *x = buffer((size_t)n * 4);
    int8_t *want = buffer((size_t)n_pad), *got = buffer((size_t)n_pad);
    int16_t *want16 = buffer((size_t)n * 2), *got16 = buffer((size_t)n * 2);
    int32_t sum[2] = {0, 0};
    float s[2] = {0.0f, 0.0f};
    fill_float(x, n, kind);

    if (S) s[0] = S->quantize_i8(x, n, want, n_pad, &sum[0]);
    s[1] = K->quantize_i8(x, n, got, n_pad, &sum[1]);
    verdict(same(got, want, (size_t)n_pad) && same(&s[1], &s[0], 4) && same(&sum[1], &sum[0], 4),
            "quantize_i8 n %d kind %d", n, kind);
    if (K == S) {
        double m = 0.0;
        int64_t total = 0;
        int ok = 1;
        for (int i = 0; i < n; i++)
            m = fabs((double)x[i]) > m ? fabs((double)x[i]) : m;
        ok &= fabs((double)s[0] * fmax(m, (double)1e-5f) / 127.0 - 1.0) < 1e-6;
        for (int i = 0; i < n; i++) {
            total += want[i];
            ok &= want[i] == (int8_t)nearbyintf(x[i] * s[0]);
        }
        for (int i = n; i < n_pad; i++)
            ok &= want[i] == 0;
        verdict(ok && total == sum[0], "quantize_i8 against nearbyint, n %d kind %d", n, kind);
    }

    if (S) s[0] = S->quantize_i16(x, n, want16);
    s[1] = K->quantize_i16(x, n, got16);
    verdict(same(got16, want16, (size_t)n * 2) && same(&s[1], &s[0], 4), "quantize_i16 n %d kind %d", n, kind);
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < n; i++)
            ok &= want16[i] == (int16_t)nearbyintf(x[i] * s[0]) && abs(want16[i]) <= HEAD_XMAX;
        verdict(ok, "quantize_i16 against nearbyint, n %d kind %d", n, kind);
    }

    if (S) S->quantize_row_i8(x, n, want, &s[0]);
    K->quantize_row_i8(x, n, got, &s[1]);
    verdict(same(got, want, (size_t)n) && same(&s[1], &s[0], 4), "quantize_row_i8 n %d kind %d", n, kind);
    if (K == S) {
        int ok = 1;
        float m = 0.0f;
        for (int i = 0; i < n; i++)
            m = fmaxf(m, fabsf(x[i]));
        for (int i = 0; i < n; i++)
            ok &= want[i] == (int8_t)nearbyintf(x[i] * (127.0f / fmaxf(m, 1e-30f))) && abs(want[i]) <= 127;
        verdict(ok && s[0] == m / 127.0f, "quantize_row_i8 against nearbyint, n %d kind %d", n, kind);
    }
    if (S) s[0] = S->quantize_q(x, n, want);
    s[1] = K->quantize_q(x, n, got);
    verdict(same(got, want, (size_t)n) && same(&s[1], &s[0], 4), "quantize_q n %d kind %d", n, kind);
    free_buffers();
}

static void test_elementwise(int n, int kind)
{
    size_t bytes = (size_t)n * 4;
    float *x = buffer(bytes), *w = buffer(bytes), *want = buffer(bytes), *got = buffer(bytes);
    fill_float(x, n, kind);
    fill_float(w, n, UNIFORM);

    if (S) S->rmsnorm(x, w, 1e-5f, n, want);
    K->rmsnorm(x, w, 1e-5f, n, got);
    verdict(same(got, want, bytes), "rmsnorm n %d kind %d", n, kind);
    memcpy(got, x, bytes);
    K->rmsnorm(got, w, 1e-5f, n, got);
    verdict(same(got, want, bytes), "rmsnorm in place n %d kind %d", n, kind);
    if (K == S) {
        long double sum = 0.0L;
        int ok = 1;
        for (int i = 0; i < n; i++)
            sum += (long double)x[i] * x[i];
        for (int i = 0; i < n; i++) {
            double exact = (double)(x[i] / sqrtl(sum / n + (long double)1e-5f) * w[i]);
            ok &= fabs(want[i] - exact) <= 4e-7 * fabs(exact) + 1e-44;
        }
        verdict(ok || kind == HUGE_VALUES, "rmsnorm against long double, n %d kind %d", n, kind);
    }

    if (S) S->gate_relu2(x, w, n, want);
    K->gate_relu2(x, w, n, got);
    verdict(same(got, want, bytes), "gate_relu2 n %d kind %d", n, kind);
    if (S) S->gate_silu(x, w, n, want);
    K->gate_silu(x, w, n, got);
    verdict(same(got, want, bytes), "gate_silu n %d kind %d", n, kind);
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < n; i++) {
            double exact = x[i] / (1.0 + exp(-(double)x[i])) * w[i];
            ok &= fabs(want[i] - exact) <= 6e-7 * fabs(exact) + 1e-30;
        }
        verdict(ok, "gate_silu against double, n %d kind %d", n, kind);
    }
    memcpy(got, x, bytes);
    K->gate_silu(got, w, n, got);
    verdict(same(got, want, bytes), "gate_silu in place n %d kind %d", n, kind);
    if (S) S->gate_gelu(x, w, n, want);
    K->gate_gelu(x, w, n, got);
    verdict(same(got, want, bytes), "gate_gelu n %d kind %d", n, kind);
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < n; i++) { /* an error of z in front of exp is an error of z times its share behind */
            double x_ = x[i], z = sqrt(2 / acos(-1.0)) * (x_ + 0.044715 * x_ * x_ * x_);
            double exact = x_ / (1.0 + exp(-2 * z)) * w[i];
            ok &= fabs(want[i] - exact) <= (6e-7 + 4e-7 * fmin(fabs(z), 90)) * fabs(exact) + 1e-30;
        }
        verdict(ok, "gate_gelu against double, n %d kind %d", n, kind);
    }
    memcpy(got, x, bytes);
    K->gate_gelu(got, w, n, got);
    verdict(same(got, want, bytes), "gate_gelu in place n %d kind %d", n, kind);
    if (S) S->gate_sigmoid(x, w, n, want);
    K->gate_sigmoid(x, w, n, got);
    verdict(same(got, want, bytes), "gate_sigmoid n %d kind %d", n, kind);
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < n; i++) {
            double exact = w[i] / (1.0 + exp(-(double)x[i]));
            ok &= fabs(want[i] - exact) <= 6e-7 * fabs(exact) + 1e-30;
        }
        verdict(ok, "gate_sigmoid against double, n %d kind %d", n, kind);
    }
    memcpy(got, x, bytes);
    K->gate_sigmoid(got, w, n, got);
    verdict(same(got, want, bytes), "gate_sigmoid in place n %d kind %d", n, kind);
    for (int i = 0; i < n; i++) /* the far ends of the exponential */
        x[i] = rnd_float() * 200.0f;
    if (S) S->gate_silu(x, w, n, want);
    K->gate_silu(x, w, n, got);
    verdict(same(got, want, bytes), "gate_silu wide n %d", n);
    for (int i = 0; i < n; i++)
        x[i] = rnd_float() * 20.0f;
    if (S) S->gate_gelu(x, w, n, want);
    K->gate_gelu(x, w, n, got);
    verdict(same(got, want, bytes), "gate_gelu wide n %d", n);

    int32_t *acc = buffer(bytes), sum = (int32_t)(rnd() >> 12);
    for (int i = 0; i < n; i++)
        acc[i] = (int32_t)(rnd() >> 10) - (1 << 21);
    for (int step = 0; step < 2; step++)
        for (int add = 0; add < 2; add++) {
            memcpy(want, x, bytes);
            memcpy(got, x, bytes);
            if (S) S->scale_sums(acc, n, sum, 3.7f, w, step, add, want);
            K->scale_sums(acc, n, sum, 3.7f, w, step, add, got);
            verdict(same(got, want, bytes), "scale_sums n %d kind %d step %d add %d", n, kind, step, add);
        }
    free_buffers();
}

static void test_rope(int n_rot, int head_dim)
{
    size_t bytes = (size_t)head_dim * 4;
    float *x = buffer(bytes), *want = buffer(bytes), *got = buffer(bytes);
    float *cs = buffer((size_t)n_rot * 2), *sn = buffer((size_t)n_rot * 2);
    fill_float(x, head_dim, UNIFORM);
    for (int j = 0; j < n_rot / 2; j++) {
        cs[j] = rnd_float();
        sn[j] = (float)sqrt(1.0 - (double)cs[j] * cs[j]);
    }
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        memcpy(want, x, bytes);
        memcpy(got, x, bytes);
        if (interleaved) {
            if (S) S->rope_interleaved(want, n_rot, cs, sn);
            K->rope_interleaved(got, n_rot, cs, sn);
        } else {
            if (S) S->rope_half(want, n_rot, cs, sn);
            K->rope_half(got, n_rot, cs, sn);
        }
        verdict(same(got, want, bytes), "rope interleaved %d n_rot %d", interleaved, n_rot);
        int ok = 1;
        for (int j = 0; K == S && j < n_rot / 2; j++) {
            int a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + n_rot / 2;
            ok &= fabs(want[a] - ((double)x[a] * cs[j] - (double)x[b] * sn[j])) < 1e-6;
            ok &= fabs(want[b] - ((double)x[b] * cs[j] + (double)x[a] * sn[j])) < 1e-6;
        }
        for (int j = n_rot; j < head_dim; j++)
            ok &= got[j] == x[j];
        verdict(ok, "rope against double, interleaved %d n_rot %d", interleaved, n_rot);
    }
    free_buffers();
}

/* ---- rotated bases ---------------------------------------------------------------------------------------------- */

static void test_basis(int block, int n, int kind)
{
    size_t bytes = (size_t)n * 4;
    float *x = buffer(bytes), *want = buffer(bytes), *got = buffer(bytes), *signs = buffer(bytes);
    fill_float(x, n, kind);
    for (int i = 0; i < n; i++)
        signs[i] = rnd() & 1 ? 1.0f : -1.0f;
    for (int which = 0; which < 3; which++) {
        const float *before = which == 1 ? signs : NULL, *after = which == 2 ? signs : NULL;
        if (S) S->change_basis(x, before, after, n, block, want);
        K->change_basis(x, before, after, n, block, got);
        verdict(same(got, want, bytes), "change_basis n %d block %d kind %d signs %d", n, block, kind, which);
        memcpy(got, x, bytes);
        K->change_basis(got, before, after, n, block, got);
        verdict(same(got, want, bytes), "change_basis in place n %d block %d kind %d signs %d", n, block, kind, which);
        int ok = 1;
        for (int i = 0; K == S && i < n; i++) { /* H[i][j] is negative where i and j share an odd number of ones */
            double y = 0.0, size = 0.0;
            for (int j = i / block * block; j < (i / block + 1) * block; j++) {
                double at = (double)x[j] * (before ? before[j] : 1.0f);
                y += __builtin_parity((unsigned)(i & j & (block - 1))) ? -at : at;
                size += fabs(at);
            }
            ok &= fabs(want[i] - y / sqrt(block) * (after ? after[i] : 1.0f)) <= 1e-6 * size / sqrt(block) + 1e-40;
        }
        verdict(ok, "change_basis against double, n %d block %d kind %d signs %d", n, block, kind, which);
    }
    K->change_basis(x, signs, NULL, n, block, got); /* and back */
    K->change_basis(got, NULL, signs, n, block, got);
    float most = 0.0f, off = 0.0f;
    for (int i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(x[i]));
        off = fmaxf(off, fabsf(got[i] - x[i]));
    }
    verdict(off <= 3e-6f * most + 1e-43f, "change_basis there and back, n %d block %d kind %d", n, block, kind);
    free_buffers();
}

static void all_bases(void)
{
    for (int block = LEAST_BASIS; block <= 2048; block *= 2)
        for (int kind = 0; kind < N_FLOATS; kind++)
            if (kind != HUGE_VALUES || block <= 64)
                test_basis(block, block * (1 + kind % 3), kind);
    test_basis(1024, 5120, UNIFORM);
}

/* ---- gated delta rule ------------------------------------------------------------------------------------------- */

static void test_conv(int n, int kind)
{
    size_t bytes = (size_t)n * 4;
    float *x[CONV_TAPS], *w = buffer(CONV_TAPS * bytes), *want = buffer(bytes), *got = buffer(bytes);
    for (int tap = 0; tap < CONV_TAPS; tap++) {
        x[tap] = buffer(bytes);
        fill_float(x[tap], n, kind);
    }
    fill_float(w, CONV_TAPS * n, UNIFORM);
    if (S) S->conv_silu((const float *const *)x, w, n, want);
    K->conv_silu((const float *const *)x, w, n, got);
    verdict(same(got, want, bytes), "conv_silu n %d kind %d", n, kind);
    int ok = 1;
    for (int i = 0; K == S && i < n; i++) {
        double y = 0.0, size = 0.0;
        for (int tap = 0; tap < CONV_TAPS; tap++) {
            y += (double)x[tap][i] * w[tap * n + i];
            size += fabs((double)x[tap][i] * w[tap * n + i]);
        }
        ok &= fabs(want[i] - y / (1.0 + exp(-y))) <= 1e-6 * size + 1e-30;
    }
    verdict(ok || kind == HUGE_VALUES, "conv_silu against double, n %d kind %d", n, kind);
    free_buffers();
}

/* Heads as a layer feeds them: k of length 1, q of length 1/sqrt(dk), 0 < beta < 1, ln g <= 0. */
struct delta_input {
    float *k, *q, *v, *beta; /* [dk], [dk], [dv], [1] */
    double g;                /* ln */
};

enum { FORGET_USUAL, FORGET_NOTHING, FORGET_ALL, FORGET_ANY, N_FORGET };

static void fill_delta(struct delta_input *in, int64_t dk, int64_t dv, int kind)
{
    double length[2] = {0.0, 0.0};
    fill_float(in->k, dk, UNIFORM);
    fill_float(in->q, dk, UNIFORM);
    fill_float(in->v, dv, UNIFORM);
    for (int64_t i = 0; i < dk; i++) {
        length[0] += (double)in->k[i] * in->k[i];
        length[1] += (double)in->q[i] * in->q[i];
    }
    for (int64_t i = 0; i < dk; i++) {
        in->k[i] = (float)(in->k[i] / sqrt(length[0]));
        in->q[i] = (float)(in->q[i] / sqrt(length[1] * (double)dk));
    }
    in->beta[0] = 0.5f + 0.499f * rnd_float();
    float u = fabsf(rnd_float());
    if (kind == FORGET_ANY)
        kind = (int)(rnd() % FORGET_ANY);
    in->g = kind == FORGET_NOTHING ? 0.0 : kind == FORGET_ALL ? -200.0f * u : -0.2f * u * u;
}

/* One token as the rule is written: state [dk][dv], o [dv] in double. */
static void delta_reference(const struct delta_input *in, int64_t dk, int64_t dv, double *exact, double *o)
{
    double g = exp(in->g);
    for (int64_t j = 0; j < dv; j++) {
        double had = 0.0, d;
        for (int64_t i = 0; i < dk; i++) {
            exact[i * dv + j] *= g;
            had += exact[i * dv + j] * in->k[i];
        }
        d = in->beta[0] * (in->v[j] - had);
        o[j] = 0.0;
        for (int64_t i = 0; i < dk; i++) {
            exact[i * dv + j] += in->k[i] * d;
            o[j] += exact[i * dv + j] * in->q[i];
        }
    }
}

/* n_token tokens in steps of random lengths: the same bits as token by token, near the rule in double, to the end. */
static void test_delta(int64_t dk, int64_t dv, int n_token, int kind)
{
    const int64_t ld_q = dk + 3, ld_v = dv + 5, ld_beta = 2, ld_o = dv + 1;
    const size_t n_state = (size_t)(dk * dv) * 4, n_d = (size_t)dv * DELTA_CHUNK * 4;
    const size_t n_o = (size_t)(ld_o * DELTA_CHUNK);
    float *state[2] = {buffer(n_state), buffer(n_state)}, *d[2] = {buffer(n_d), buffer(n_d)};
    float *k = buffer((size_t)dk * DELTA_CHUNK * 4), *q = buffer((size_t)ld_q * DELTA_CHUNK * 4);
    float *v = buffer((size_t)ld_v * DELTA_CHUNK * 4), *beta = buffer((size_t)ld_beta * DELTA_CHUNK * 4);
    float *o[2] = {buffer(n_o * 4), buffer(n_o * 4)};
    double *c = buffer(DELTA_CHUNK * 8), *exact = buffer(n_state * 2), *answer = buffer((size_t)dv * 8);
    double worst[2] = {0.0, 0.0}; /* of both halves of the text */
    int equal = 1;
    memset(state[0], 0, n_state);
    memset(state[1], 0, n_state);
    memset(exact, 0, n_state * 2);
    memset(q, 0, (size_t)ld_q * DELTA_CHUNK * 4);
    for (int begin = 0; begin < n_token; begin += DELTA_CHUNK) {
        const int some = n_token - begin < DELTA_CHUNK ? n_token - begin : DELTA_CHUNK;
        struct delta_input in[DELTA_CHUNK];
        for (int t = 0; t < some; t++) {
            in[t] = (struct delta_input){k + t * dk, q + t * ld_q, v + t * ld_v, beta + t * ld_beta, 0.0};
            fill_delta(&in[t], dk, dv, kind);
            c[t] = (t ? c[t - 1] : 0.0) + in[t].g;
        }
        memset(o[0], 0, n_o * 4);
        memset(o[1], 0, n_o * 4);
        memset(d[0], 0, n_d);
        memset(d[1], 0, n_d);
        for (int t = 0; t < some; t++)
            if (S)
                S->delta_chunk(state[0], dk, dv, t, 1, k, c, q + t * ld_q, ld_q, v + t * ld_v, ld_v, beta + t * ld_beta,
                               ld_beta, d[0], o[0] + t * ld_o, ld_o);
        for (int t = 0; t < some;) {
            int n = begin % 3 ? 1 + (int)(rnd() % (uint32_t)(some - t)) : some - t;
            K->delta_chunk(state[1], dk, dv, t, n, k, c, q + t * ld_q, ld_q, v + t * ld_v, ld_v, beta + t * ld_beta,
                           ld_beta, d[1], o[1] + t * ld_o, ld_o);
            t += n;
        }
        equal &= same(o[1], o[0], n_o * 4) && same(d[1], d[0], n_d);
        for (int t = 0; K == S && t < some; t++) {
            delta_reference(&in[t], dk, dv, exact, answer);
            for (int64_t j = 0; j < dv; j++) { /* compared, not fmax: GCC 12 for aarch64 ends in an internal error */
                double error = fabs(o[0][t * ld_o + j] - answer[j]);
                if (!(error <= worst[begin >= n_token / 2]))
                    worst[begin >= n_token / 2] = error;
            }
        }
        if (some == DELTA_CHUNK) {
            float *other = buffer(n_state); /* elsewhere, then in place */
            if (S) S->delta_seal(state[0], dk, dv, k, c, d[0], state[0]);
            K->delta_seal(state[1], dk, dv, k, c, d[1], other);
            K->delta_seal(state[1], dk, dv, k, c, d[1], state[1]);
            equal &= same(state[1], state[0], n_state) && !memcmp(other, state[1], n_state);
            n_buffer--;
            munmap(buffers[n_buffer].map, buffers[n_buffer].size);
        }
    }
    verdict(equal, "gated delta rule, dims %d %d tokens %d kind %d", (int)dk, (int)dv, n_token, kind);
    double size = 3.0 / sqrt((double)dk); /* of answers at most, where v is found as it was stored */
    verdict(worst[0] <= 1e-6 * size && worst[1] <= 1e-6 * size,
            "gated delta rule against double, dims %d %d tokens %d kind %d: %g, then %g of %g", (int)dk, (int)dv,
            n_token, kind, worst[0], worst[1], size);
    free_buffers();
}

static void all_delta(void)
{
    for (int i = 0; i < N_LENGTH; i++)
        for (int kind = 0; kind < N_FLOATS; kind++)
            test_conv(lengths[i], kind);
    for (int kind = 0; kind < N_FORGET; kind++) {
        for (int n_token = 1; n_token <= 70; n_token += 1 + n_token / 3)
            test_delta(16 + 16 * (n_token % 3), 16 + 16 * (n_token % 4), n_token, kind);
        test_delta(128, 128, 100, kind);
        test_delta(16, 32, 1000, kind);
        if (K == S) { /* no drift: of the specification, since the others equal it chunk by chunk */
            const uint64_t before[2] = {state, digest};
            test_delta(16, 32, 20000, kind);
            state = before[0], digest = before[1];
        }
    }
    test_delta(MAX_DELTA_DIM, MAX_DELTA_DIM, 40, FORGET_USUAL);
}

/* ---- heads ------------------------------------------------------------------------------------------------------ */

enum { HEADS = 7 }; /* vectors */

static void test_head(int n_row, int k, int kind)
{
    another_way();
    size_t n = (size_t)n_row * (size_t)k;
    int8_t *w8 = buffer(n);
    uint16_t *w16 = buffer(n * 2);
    float *w32 = buffer(n * 4), *scale = buffer((size_t)n_row * 4), *x = buffer((size_t)k * 4);
    int16_t *xq = buffer((size_t)k * 2 * HEADS);
    float *want = buffer((size_t)n_row * 4 * HEADS), *got = buffer((size_t)n_row * 4 * HEADS);
    float *wants[HEADS], *gots[HEADS], s[HEADS];
    for (size_t i = 0; i < n; i++) {
        w8[i] = kind == 0 ? (int8_t)((int)(rnd() % 255) - 127) : kind == 1 ? -128 : rnd() & 1 ? 127 : -127;
        w32[i] = rnd_float();
        w16[i] = float_half(w32[i]);
    }
    for (int j = 0; j < HEADS; j++)
        wants[j] = want + j * n_row, gots[j] = got + j * n_row, s[j] = 123.0f + (float)j;
    for (int i = 0; i < k; i++)
        x[i] = kind == 2 ? rnd_float() * 1e-39f : rnd_float();
    for (int i = 0; i < k * HEADS; i++) {
        xq[i] = kind == 1 ? HEAD_XMAX : -HEAD_XMAX;
        if (kind == 0)
            xq[i] = (int16_t)((int)(rnd() % (2 * HEAD_XMAX + 1)) - HEAD_XMAX);
    }
    for (int r = 0; r < n_row; r++)
        scale[r] = r == 0 ? 0.0f : 0.01f + 0.01f * rnd_float();

    for (int n_x = 1; n_x <= HEADS; n_x++) {
        if (S) S->head_i8(w8, scale, n_row, k, xq, n_x, s, wants);
        K->head_i8(w8, scale, n_row, k, xq, n_x, s, gots);
        verdict(same(got, want, (size_t)(n_row * n_x) * 4), "head_i8 rows %d k %d kind %d vectors %d", n_row, k, kind,
                n_x);
    }
    if (K == S) {
        int ok = 1;
        for (int r = 0; r < n_row; r++) {
            int64_t sum = 0;
            for (int i = 0; i < k; i++)
                sum += (int64_t)w8[(size_t)r * (size_t)k + (size_t)i] * xq[i];
            ok &= want[r] == (float)sum * (scale[r] / 123.0f);
        }
        verdict(ok, "head_i8 against int64, rows %d k %d", n_row, k);
    }
    int8_t *x8 = buffer((size_t)k * BYTE_DOTS_MOST);
    int32_t *want_sums[BYTE_DOTS_MOST], *got_sums[BYTE_DOTS_MOST];
    for (int i = 0; i < k * BYTE_DOTS_MOST; i++)
        x8[i] = kind == 0 ? (int8_t)((int)(rnd() % 255) - 127) : kind == 1 ? -127 : rnd() & 1 ? 127 : -127;
    for (int j = 0; j < BYTE_DOTS_MOST; j++)
        want_sums[j] = buffer((size_t)n_row * 4), got_sums[j] = buffer((size_t)n_row * 4);
    for (int n_x = 1; n_x <= BYTE_DOTS_MOST; n_x++) {
        int ok = 1;
        if (S) S->byte_dots(w8, n_row, k, x8, n_x, want_sums);
        K->byte_dots(w8, n_row, k, x8, n_x, got_sums);
        for (int j = 0; j < n_x; j++)
            for (int r = 0; r < n_row; r++) {
                int32_t sum = 0;
                for (int i = 0; K == S && i < k; i++)
                    sum += w8[(size_t)r * (size_t)k + (size_t)i] * x8[(size_t)j * (size_t)k + (size_t)i];
                ok &= same(got_sums[j] + r, want_sums[j] + r, 4) && (K != S || want_sums[j][r] == sum);
            }
        verdict(ok, "byte_dots rows %d k %d kind %d vectors %d", n_row, k, kind, n_x);
    }
    if (k % Q8_BLOCK == 0) {
        int64_t n_block = k / Q8_BLOCK;
        uint8_t *blocks = buffer((size_t)(n_row * n_block) * Q8_BLOCK_BYTES);
        for (int64_t b = 0; b < n_row * n_block; b++) {
            uint16_t d = kind == 2 ? (uint16_t)(rnd() % 0x400) : float_half(0.01f * rnd_float()); /* 2: subnormal */
            memcpy(blocks + b * Q8_BLOCK_BYTES, &d, 2);
            memcpy(blocks + b * Q8_BLOCK_BYTES + 2, w8 + b * Q8_BLOCK, Q8_BLOCK);
        }
        for (int n_x = 1; n_x <= HEADS; n_x += 2) {
            if (S) S->head_q8_0(blocks, n_row, k, xq, n_x, s, wants);
            K->head_q8_0(blocks, n_row, k, xq, n_x, s, gots);
            verdict(same(got, want, (size_t)(n_row * n_x) * 4), "head_q8_0 rows %d k %d kind %d vectors %d", n_row, k,
                    kind, n_x);
        }
        if (K == S) {
            int ok = 1;
            for (int r = 0; r < n_row; r++) {
                double sum = 0.0, size = 0.0;
                for (int i = 0; i < k; i++) {
                    uint16_t d;
                    memcpy(&d, blocks + ((int64_t)r * n_block + i / Q8_BLOCK) * Q8_BLOCK_BYTES, 2);
                    double p = (double)w8[(size_t)r * (size_t)k + (size_t)i] * half_float(d) * xq[i] / 123.0;
                    sum += p;
                    size += fabs(p);
                }
                ok &= fabs(want[r] - sum) <= 1e-6 * size;
            }
            verdict(ok, "head_q8_0 against double, rows %d k %d", n_row, k);
        }
    }
    if (S) S->head_f16(w16, n_row, k, x, want);
    K->head_f16(w16, n_row, k, x, got);
    verdict(same(got, want, (size_t)n_row * 4), "head_f16 rows %d k %d kind %d", n_row, k, kind);
    if (S) S->head_f32(w32, n_row, k, x, want);
    K->head_f32(w32, n_row, k, x, got);
    verdict(same(got, want, (size_t)n_row * 4), "head_f32 rows %d k %d kind %d", n_row, k, kind);
    if (K == S) {
        int ok = 1;
        for (int r = 0; r < n_row; r++) {
            double sum = 0.0, size = 0.0;
            for (int i = 0; i < k; i++) {
                double p = (double)w32[(size_t)r * (size_t)k + (size_t)i] * x[i];
                sum += p;
                size += fabs(p);
            }
            ok &= fabs(want[r] - sum) <= 1e-6 * size + 1e-40;
        }
        verdict(ok, "head_f32 against double, rows %d k %d", n_row, k);
    }
    free_buffers();
}

/* Rows of bit planes; the reference unpacks by the definition, one code after the other. */
static void test_planes(int n_row, int k, int n_x, int kind)
{
    another_way();
    int32_t ld = n_row + 3;
    size_t n_out = ((size_t)(n_x - 1) * (size_t)ld + (size_t)n_row) * 4, n_code = (size_t)n_row * (size_t)k / 8;
    int8_t *x = buffer((size_t)n_x * (size_t)k);
    int32_t *list = buffer((size_t)n_row * 4);
    fill_i8(x, (int64_t)n_x * k, kind % N_I8);
    if (kind == I8_MIN)
        memset(x, -128, (size_t)n_x * (size_t)k);
    for (int bits = 1; bits <= 4; bits += 3) {
        uint8_t *rows = buffer(n_code * (size_t)bits);
        int32_t *want = buffer(n_out), *got = buffer(n_out);
        for (size_t i = 0; i < n_code * (size_t)bits; i++)
            rows[i] = kind < N_I8 ? (uint8_t)rnd() : 0xff;
        for (int r = 0; r < n_row; r++)
            list[r] = bits == 4 ? r : (int32_t)(rnd() % (uint32_t)n_row); /* any order, some twice */
        if (bits == 4) {
            if (S) S->nibble_dots(rows, n_row, k, x, n_x, want, ld);
            K->nibble_dots(rows, n_row, k, x, n_x, got, ld);
        } else {
            if (S) S->bit_dots(rows, list, n_row, k, x, n_x, want, ld);
            K->bit_dots(rows, list, n_row, k, x, n_x, got, ld);
        }
        verdict(same(got, want, n_out), "%d-bit rows %d k %d vectors %d kind %d", bits, n_row, k, n_x, kind);
        int ok = 1;
        for (int r = 0; K == S && r < n_row; r++)
            for (int j = 0; j < n_x; j++) {
                int64_t sum = 0;
                const uint8_t *p = rows + (size_t)list[r] * (size_t)k / 8 * (size_t)bits;
                for (int at = 0, shift = 0, i = 0; i < k; i++) { /* 64 codes from the same bits of a line */
                    int64_t code = p[at + i % 64] >> shift & ((1 << bits) - 1);
                    sum += code * x[(size_t)j * (size_t)k + (size_t)i];
                    if (i % 64 == 63 && (shift = (shift + bits) % 8) == 0)
                        at += 64;
                }
                ok &= want[j * ld + r] == sum;
            }
        verdict(ok, "%d-bit rows against int64, rows %d k %d", bits, n_row, k);
    }
    free_buffers();
}

/* ---- conversions ------------------------------------------------------------------------------------------------ */

static void test_halves(void)
{
    enum { N = 1 << 16, M = 3 * N };
    uint16_t *h = buffer(N * 2), *want_h = buffer(M * 2), *got_h = buffer(M * 2);
    float *want = buffer(N * 4), *got = buffer(N * 4), *x = buffer(M * 4);
    for (int i = 0; i < N; i++)
        h[i] = (uint16_t)i;
    if (S) S->half_to_float(h, N, want);
    K->half_to_float(h, N, got);
    verdict(same(got, want, N * 4), "half_to_float, all halves");
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < N; i++) {
            int e = i >> 10 & 31, f = i & 1023, sign = i >> 15;
            double v = e ? ldexp(1.0 + f / 1024.0, e - 15) : ldexp(f / 1024.0, -14);
            if (e == 31)
                ok &= f ? isnan(want[i]) && (float_bits(want[i]) & 0x400000u) : isinf(want[i]);
            else
                ok &= want[i] == (float)(sign ? -v : v);
            ok &= (float_bits(want[i]) >> 31) == (uint32_t)sign;
        }
        verdict(ok, "half_to_float against ldexp");
    }
    for (int i = 0; i < N; i++) { /* exact, the midpoint to the next half, and around it */
        float a = got[i], b = got[(i & 0x7fff) == 0x7fff ? i : i + 1];
        x[3 * i] = a;
        x[3 * i + 1] = isfinite(a) && isfinite(b) ? (a + b) / 2 : a;
        x[3 * i + 2] = bits_float(float_bits(x[3 * i + 1]) + (i & 1 ? 1u : ~0u));
    }
    if (S) S->float_to_half(x, M, want_h);
    K->float_to_half(x, M, got_h);
    verdict(same(got_h, want_h, M * 2), "float_to_half, all halves and midpoints");
    if (K == S) {
        int ok = 1;
        for (int i = 0; i < N; i++) {
            int nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
            ok &= want_h[3 * i] == (nan ? i | 0x200 : i);
            if ((i & 0x7fff) < 0x7bff) /* ties to even */
                ok &= want_h[3 * i + 1] == (i & 1 ? i + 1 : i);
        }
        ok &= float_half(65519.996f) == 0x7bff && float_half(65520.0f) == 0x7c00 && float_half(-1e30f) == 0xfc00;
        ok &= float_half(0x1p-25f) == 0 && float_half(0x1.000002p-25f) == 1 && float_half(-0x1p-26f) == 0x8000;
        verdict(ok, "float_to_half rounds to nearest even");
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < M; i++)
            x[i] = bits_float(rnd());
        if (S) S->float_to_half(x, M, want_h);
        K->float_to_half(x, M, got_h);
        verdict(same(got_h, want_h, M * 2), "float_to_half, random bits");
    }
    for (int n = 0; n <= 35; n++) { /* every remainder, and nothing written beyond it */
        uint16_t *a = buffer((size_t)n * 2);
        float *y = buffer((size_t)n * 4), *z = buffer((size_t)n * 4);
        for (int i = 0; i < n; i++)
            a[i] = (uint16_t)rnd();
        if (S) S->half_to_float(a, n, y);
        K->half_to_float(a, n, z);
        verdict(same(z, y, (size_t)n * 4), "half_to_float n %d", n);
        uint16_t *b = buffer((size_t)n * 2), *c = buffer((size_t)n * 2);
        if (S) S->float_to_half(z, n, b);
        K->float_to_half(z, n, c);
        verdict(same(c, b, (size_t)n * 2), "float_to_half n %d", n);
        n_buffer -= 5; /* keep the big ones, release these */
        for (int i = 0; i < 5; i++)
            munmap(buffers[n_buffer + i].map, buffers[n_buffer + i].size);
    }
    free_buffers();
}

static void test_expf(void)
{
    double worst = 0.0;
    float previous = 0.0f;
    int rising = 1;
    for (int i = 0; i <= 1750000; i++) {
        float x = -87.0f + (float)i * 1e-4f, y = kernel_expf(x);
        double exact = exp((double)x), ulp = ldexp(1.0, ilogb(exact) - 23);
        double error = fabs(y - exact) / ulp;
        worst = x <= 88.0f && error > worst ? error : worst;
        rising &= y >= previous;
        previous = y;
    }
    verdict(worst <= 2.0, "kernel_expf is %.3f ulp off", worst);
    verdict(rising, "kernel_expf is not monotonic");
    verdict(kernel_expf(0.0f) == 1.0f && kernel_expf(-0.0f) == 1.0f, "kernel_expf(0)");
    verdict(kernel_expf(-INFINITY) == 0.0f && kernel_expf(-88.0f) == 0.0f && kernel_expf(-1e30f) == 0.0f,
            "kernel_expf of very negative numbers");
    verdict(kernel_expf(INFINITY) == INFINITY && isnan(kernel_expf(NAN)), "kernel_expf(inf), kernel_expf(nan)");
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

static const uint32_t masks[] = {0xffffffffu, 1u, 1u << 31, 1u << 16, 0x0000ffffu, 0xffff0000u, 0x00010001u,
                                 0x80000001u, 0x55555555u, 0x0f0f00f0u, 0x7fffffffu, 0x00000080u};

enum { N_MASK = sizeof masks / sizeof masks[0] };

static size_t f16_bytes(int64_t d) { return (size_t)d * KV_PAGE * 4; }
static size_t i8_bytes(int64_t d) { return (size_t)d * KV_PAGE * 2 + 128; }

/* kinds: 0 uniform, 1 zeros, 2 half denormals, 3 all equal, 4 large (peaky softmax) */
static void fill_page(uint16_t *page, int64_t d, int kind)
{
    for (int64_t i = 0; i < d * KV_PAGE * 2; i++)
        switch (kind) {
        case 0: page[i] = float_half(rnd_float()); break;
        case 1: page[i] = 0; break;
        case 2: page[i] = (uint16_t)(rnd() & 0x83ffu); break;
        case 3: page[i] = float_half(-0.37f); break;
        case 4: page[i] = float_half(rnd_float() * 20.0f); break;
        }
}

/* The three steps over one page: K or S, then the state. */
static void attend_f16(const struct kernels *target, const uint16_t *page, int64_t d, int64_t n_q, uint32_t valid,
                       const float *q, float *m, float *l, float *o)
{
    float s[16 * KV_PAGE];
    const uint16_t *v = page + d * KV_PAGE;
    target->score_f16(page, page, d, n_q, q, s);
    target->softmax_page(d, n_q, valid, s, m, l, o);
    target->value_f16(v, v, d, n_q, s, o);
}

/* The same page as floats gives the same bits. */
static void attend_f32(const struct kernels *target, const uint16_t *page, int64_t d, int64_t n_q, uint32_t valid,
                       const float *q, float *m, float *l, float *o)
{
    static float floats[2 * MAX_HEAD_DIM * KV_PAGE];
    float s[16 * KV_PAGE];
    const float *v = floats + d * KV_PAGE;
    target->half_to_float(page, 2 * d * KV_PAGE, floats);
    target->score_f32(floats, floats, d, n_q, q, s);
    target->softmax_page(d, n_q, valid, s, m, l, o);
    target->value_f32(v, v, d, n_q, s, o);
}

static void attend_i8(const struct kernels *target, const int8_t *page, int64_t d, int64_t n_q, uint32_t valid,
                      const int8_t *q, const float *qs, float *m, float *l, float *o)
{
    float s[16 * KV_PAGE];
    const int8_t *v = page + i8_bytes(d) / 2;
    target->score_i8(page, page, d, n_q, q, qs, s);
    target->softmax_page(d, n_q, valid, s, m, l, o);
    target->value_i8(v, v, d, n_q, s, o);
}

static void test_attend_f16(int64_t d, int n_q, uint32_t valid, int kind)
{
    size_t n_o = (size_t)(n_q * d) * 4, n_m = (size_t)n_q * 4;
    uint16_t *page = buffer(f16_bytes(d));
    float *q = buffer(n_o), *o[3] = {buffer(n_o), buffer(n_o), buffer(n_o)};
    float *m[3] = {buffer(n_m), buffer(n_m), buffer(n_m)}, *l[3] = {buffer(n_m), buffer(n_m), buffer(n_m)};
    double *score = calloc((size_t)(3 * n_q * KV_PAGE), 8), *num = calloc((size_t)(n_q * d), 8);
    double *den = calloc((size_t)n_q, 8);
    fill_float(q, n_q * d, UNIFORM);
    for (int i = 0; i < 3; i++) {
        memset(o[i], 0, n_o);
        memset(l[i], 0, n_m);
        for (int j = 0; j < n_q; j++)
            m[i][j] = -INFINITY;
    }
    for (int step = 0; step < 3; step++) { /* from -inf, then onto a running state */
        uint32_t v = step == 0 ? valid : step == 1 ? 0xffffffffu : rnd() | 0x00400000u;
        fill_page(page, d, step == 2 ? 4 : kind);
        memcpy(m[2], m[1], n_m), memcpy(l[2], l[1], n_m), memcpy(o[2], o[1], n_o);
        if (S)
            attend_f16(S, page, d, n_q, v, q, m[0], l[0], o[0]);
        attend_f16(K, page, d, n_q, v, q, m[1], l[1], o[1]);
        attend_f32(K, page, d, n_q, v, q, m[2], l[2], o[2]);
        verdict(same(m[2], m[1], n_m) && same(l[2], l[1], n_m) && same(o[2], o[1], n_o),
                "attend_f32 dim %d n_q %d valid %08x kind %d step %d", (int)d, n_q, v, kind, step);
        verdict(same(m[1], m[0], n_m) && same(l[1], l[0], n_m) && same(o[1], o[0], n_o),
                "attend_f16 dim %d n_q %d valid %08x kind %d step %d", (int)d, n_q, v, kind, step);
        if (K != S)
            continue;
        int ok = 1; /* softmax in double, with the scores far below overflow after subtracting the float maximum */
        for (int i = 0; i < n_q; i++) {
            double shift = step ? score[i] : -1e300, biggest = shift;
            double s[KV_PAGE];
            for (int t = 0; t < KV_PAGE; t++) {
                s[t] = 0.0;
                for (int64_t j = 0; j < d; j++)
                    s[t] += (double)q[i * d + j] * half_float(page[j * KV_PAGE + t]);
                if (v >> t & 1 && s[t] > biggest)
                    biggest = s[t];
            }
            double c = step ? exp(shift - biggest) : 0.0;
            den[i] *= c;
            for (int64_t j = 0; j < d; j++)
                num[i * d + j] *= c;
            for (int t = 0; t < KV_PAGE; t++)
                if (v >> t & 1) {
                    double p = exp(s[t] - biggest);
                    den[i] += p;
                    for (int64_t j = 0; j < d; j++)
                        num[i * d + j] += p * half_float(page[d * KV_PAGE + t * d + j]);
                }
            score[i] = biggest;
            for (int64_t j = 0; j < d; j++)
                ok &= fabs(o[0][i * d + j] / l[0][i] - num[i * d + j] / den[i]) <= 2e-3;
        }
        verdict(ok, "attend_f16 against double, dim %d n_q %d valid %08x step %d", (int)d, n_q, v, step);
    }
    free(score);
    free(num);
    free(den);
    free_buffers();
}

/* kinds: 0 uniform codes, 1 all +127, 2 all -127, 3 random extremes, 4 zero scales, 5 tiny scales */
static void test_attend_i8(int64_t d, int n_q, uint32_t valid, int kind, int q_kind)
{
    size_t n_o = (size_t)(n_q * d) * 4, n_m = (size_t)n_q * 4;
    int8_t *page = buffer(i8_bytes(d)), *q = buffer((size_t)(n_q * d));
    float *qs = buffer(n_m), *o[2] = {buffer(n_o), buffer(n_o)};
    float *m[2] = {buffer(n_m), buffer(n_m)}, *l[2] = {buffer(n_m), buffer(n_m)};
    const int8_t *values = page + i8_bytes(d) / 2;
    uint16_t *ks = (uint16_t *)(page + d * KV_PAGE), *vs = (uint16_t *)(values + d * KV_PAGE);
    fill_i8(q, n_q * d, q_kind);
    for (int i = 0; i < n_q; i++)
        qs[i] = 0.002f + 0.001f * rnd_float();
    for (int i = 0; i < 2; i++) {
        memset(o[i], 0, n_o);
        memset(l[i], 0, n_m);
        for (int j = 0; j < n_q; j++)
            m[i][j] = -INFINITY;
    }
    for (int step = 0; step < 3; step++) {
        static const int codes[] = {I8_UNIFORM, I8_MAX, I8_MIN, I8_EXTREMES, I8_UNIFORM, I8_UNIFORM};
        uint32_t v = step == 0 ? valid : step == 1 ? 0xffffffffu : rnd() | 0x00400000u;
        for (int half = 0; half < 2; half++) {
            uint16_t *scales = half ? vs : ks;
            fill_i8(page + (size_t)half * (i8_bytes(d) / 2), d * KV_PAGE, codes[kind]);
            for (int t = 0; t < KV_PAGE; t++)
                scales[t] = kind == 4   ? 0
                            : kind == 5 ? (uint16_t)(rnd() % 4)
                                        : float_half(0.02f + 0.01f * rnd_float());
        }
        if (S)
            attend_i8(S, page, d, n_q, v, q, qs, m[0], l[0], o[0]);
        attend_i8(K, page, d, n_q, v, q, qs, m[1], l[1], o[1]);
        verdict(same(m[1], m[0], n_m) && same(l[1], l[0], n_m) && same(o[1], o[0], n_o),
                "attend_i8 dim %d n_q %d valid %08x kind %d q %d step %d", (int)d, n_q, v, kind, q_kind, step);
        if (K != S || step)
            continue;
        int ok = 1; /* one page in double; u8 probabilities cost at most 1/510 of the largest term per token */
        for (int i = 0; i < n_q; i++) {
            double s[KV_PAGE], biggest = -1e300, den = 0.0, slack = 0.0;
            for (int t = 0; t < KV_PAGE; t++) {
                int64_t sum = 0;
                for (int64_t j = 0; j < d; j++)
                    sum += (int64_t)q[i * d + j] * page[(j / 4 * KV_PAGE + t) * 4 + j % 4];
                s[t] = (double)sum * half_float(ks[t]) * qs[i];
                if (v >> t & 1 && s[t] > biggest)
                    biggest = s[t];
            }
            for (int t = 0; t < KV_PAGE; t++) {
                s[t] = v >> t & 1 ? exp(s[t] - biggest) : 0.0;
                den += s[t];
                slack = fmax(slack, s[t] * half_float(vs[t]));
            }
            for (int64_t j = 0; j < d; j++) {
                double num = 0.0;
                for (int t = 0; t < KV_PAGE; t++)
                    num += s[t] * half_float(vs[t]) * values[(t / 4 * d + j) * 4 + t % 4];
                double bound = (slack / 510 * 127 * 32 + 2e-3 * fabs(num)) / den + 1e-30;
                ok &= fabs(o[0][i * d + j] / l[0][i] - num / den) <= bound;
            }
        }
        verdict(ok, "attend_i8 against double, dim %d n_q %d valid %08x kind %d", (int)d, n_q, v, kind);
    }
    free_buffers();
}

/* 4-bit blocks, keys and values: random, all-least and all-most codes, scales of either sign, int8 queries at their
 * bounds.  kinds: 0 random bytes, 1 all 0, 2 all 15, 3 random with scales 0 */
static void test_nibbles(int64_t d, int n_q, int kind, int q_kind)
{
    const int64_t n_code = d * KV_PAGE / 2, n_scale = d / kv_group(d) * KV_PAGE;
    const int64_t n_half = 2 * (n_scale > d ? n_scale : d);
    size_t n_o = (size_t)(n_q * d) * 4, n_s = (size_t)(n_q * KV_PAGE) * 4;
    uint8_t *block = buffer((size_t)(n_code + 2 * n_half));
    uint16_t *half = (uint16_t *)(block + n_code);
    int8_t *q8 = buffer((size_t)(n_q * d));
    float *q = buffer(n_o), *qs = buffer((size_t)n_q * 4), *p = buffer(n_s);
    float *s[2] = {buffer(n_s), buffer(n_s)}, *o[2] = {buffer(n_o), buffer(n_o)};
    const struct kernels *const target[2] = {S, K};
    for (int64_t i = 0; i < n_code; i++)
        block[i] = kind == 1 ? 0 : kind == 2 ? 0xff : (uint8_t)rnd();
    for (int64_t i = 0; i < n_half; i++)
        half[i] = kind == 3 ? 0 : float_half(0.2f * rnd_float());
    fill_i8(q8, n_q * d, q_kind);
    fill_float(q, n_q * d, q_kind == I8_ZERO ? ZEROS : UNIFORM);
    for (int i = 0; i < n_q; i++)
        qs[i] = 0.002f + 0.001f * rnd_float();
    for (int i = 0; i < n_q * KV_PAGE; i++)
        p[i] = kind == 3 ? 0.0f : fabsf(rnd_float());
    for (int i = !S; i < 2; i++)
        target[i]->score_i4(block, block, d, n_q, q8, qs, s[i]);
    verdict(same(s[1], s[0], n_s), "score_i4 dim %d n_q %d kind %d q %d", (int)d, n_q, kind, q_kind);
    int ok = 1;
    for (int i = 0; K == S && i < n_q; i++)
        for (int t = 0; t < KV_PAGE; t++) {
            double sum = 0.0, size = 0.0;
            for (int64_t j = 0; j < d; j++) {
                int code = block[(j / 4 * 16 + t % 16) * 4 + j % 4] >> (t < 16 ? 0 : 4) & 15;
                double x = (double)q8[i * d + j] * (code - 8) * half_float(half[j / kv_group(d) * KV_PAGE + t]) * qs[i];
                sum += x, size += fabs(x);
            }
            ok &= fabs(s[0][i * KV_PAGE + t] - sum) <= 1e-6 * size + 1e-30;
        }
    verdict(ok, "score_i4 against double, dim %d kind %d q %d", (int)d, kind, q_kind);
    for (int i = !S; i < 2; i++)
        target[i]->score_i4c(block, block, d, n_q, q, s[i]);
    verdict(same(s[1], s[0], n_s), "score_i4c dim %d n_q %d kind %d q %d", (int)d, n_q, kind, q_kind);
    for (int64_t i = 0; i < n_half; i++) /* values have scales of one sign */
        half[i] &= i < n_scale ? 0x7fff : 0xffff;
    for (int channel = 0; channel < 2; channel++) {
        for (int i = !S; i < 2; i++) {
            fill_float(o[i], n_q * d, EQUAL);
            (channel ? target[i]->value_i4c : target[i]->value_i4)(block, block, d, n_q, p, o[i]);
        }
        verdict(same(o[1], o[0], n_o), "value_i4%s dim %d n_q %d kind %d", channel ? "c" : "", (int)d, n_q, kind);
        ok = 1; /* a byte of probability is at most 1/510 of the largest weight off, for 32 codes of at most 15 */
        for (int i = 0; K == S && i < n_q; i++)
            for (int64_t j = 0; j < d; j++) {
                int64_t ng = channel ? d : n_scale, most = 0;
                double sum = -0.7f, slack = 0.0;
                for (int t = 0; t < KV_PAGE; t++) {
                    int64_t at = channel ? j : j / kv_group(d) * KV_PAGE + t;
                    int code = block[(t % 16 / 4 * d + j) * 4 + t % 4] >> (t < 16 ? 0 : 4) & 15;
                    double scale = half_float(half[at]), w = p[i * KV_PAGE + t];
                    sum += w * (scale * code + half_float(half[ng + at]));
                    slack = fmax(slack, w * fabs(scale));
                    most += code;
                }
                ok &= fabs(o[0][i * d + j] - sum) <= slack / 510 * (double)most + 1e-4;
            }
        verdict(ok, "value_i4%s against double, dim %d n_q %d kind %d", channel ? "c" : "", (int)d, n_q, kind);
    }
    free_buffers();
}

static void test_pages(int64_t d, int kind)
{
    uint16_t *page[2] = {buffer(f16_bytes(d)), buffer(f16_bytes(d))};
    int8_t *sealed[2] = {buffer(i8_bytes(d)), buffer(i8_bytes(d))};
    float *k = buffer((size_t)d * 4), *v = buffer((size_t)d * 4);
    for (int i = 0; i < 2; i++) {
        memset(page[i], 0, f16_bytes(d));
        memset(sealed[i], 0xa5, i8_bytes(d));
    }
    for (int t = 0; t < KV_PAGE; t++) {
        fill_float(k, d, (kind + t / 8) % N_FLOATS);
        fill_float(v, d, kind);
        for (int64_t i = 0; i < d; i++) { /* stay inside half range */
            k[i] = fabsf(k[i]) > 6e4f ? 6e4f : k[i];
            v[i] = fabsf(v[i]) > 6e4f ? -6e4f : v[i];
        }
        for (int64_t i = 0; i < d; i++) {
            page[0][i * KV_PAGE + t] = page[1][i * KV_PAGE + t] = float_half(k[i]);
            page[0][(KV_PAGE + t) * d + i] = page[1][(KV_PAGE + t) * d + i] = float_half(v[i]);
        }
    }
    const struct kernels *const target[2] = {S, K};
    for (int i = !S; i < 2; i++) {
        target[i]->seal_keys_i8(page[i], d, sealed[i]);
        target[i]->seal_values_i8(page[i] + d * KV_PAGE, d, sealed[i] + i8_bytes(d) / 2);
    }
    verdict(same(sealed[1], sealed[0], i8_bytes(d)), "seal_i8 dim %d kind %d", (int)d, kind);
    if (K == S) {
        const int8_t *values = sealed[0] + i8_bytes(d) / 2;
        const uint16_t *ks = (const uint16_t *)(sealed[0] + d * KV_PAGE);
        const uint16_t *vs = (const uint16_t *)(values + d * KV_PAGE);
        int ok = 1;
        for (int t = 0; t < KV_PAGE; t++)
            for (int64_t i = 0; i < d; i++) {
                float a = half_float(page[0][i * KV_PAGE + t]), b = half_float(page[0][(KV_PAGE + t) * d + i]);
                int8_t qa = sealed[0][(i / 4 * KV_PAGE + t) * 4 + i % 4];
                int8_t qb = values[(t / 4 * d + i) * 4 + t % 4];
                float sa = half_float(ks[t]), sb = half_float(vs[t]);
                ok &= qa != -128 && qb != -128;
                /* half a step, plus the clamp where rounding the scale to half made it too small */
                ok &= fabsf(a - qa * sa) <= sa * 0.5001f + 0.001f * fabsf(a) + 127 * 0x1p-25f;
                ok &= fabsf(b - qb * sb) <= sb * 0.5001f + 0.001f * fabsf(b) + 127 * 0x1p-25f;
            }
        verdict(ok, "seal_i8 reconstructs, dim %d kind %d", (int)d, kind);
    }
    free_buffers();
}

/* Blocks of fewer bits: sealed, unpacked, rotated, into buffers that end where they must.  What the bytes should be is
 * judged in tests/kernels/test_pages.py; here the digest says that every architecture makes the same. */
static void test_packed(int64_t d, int kind)
{
    const int64_t n = d * KV_PAGE;
    uint16_t *x = buffer((size_t)n * 2), *half = buffer((size_t)n * 2);
    float *y = buffer((size_t)d * 4);
    uint8_t *i8 = buffer((size_t)(n + 2 * KV_PAGE));
    for (int64_t i = 0; i < KV_PAGE; i++) {
        fill_float(y, d, kind);
        for (int64_t j = 0; j < d; j++)
            x[i * d + j] = float_half(y[j] > 6e4f ? 6e4f : y[j] < -6e4f ? -6e4f : y[j]);
    }
    for (int values = 0; values < 2; values++) {
        size_t size = (size_t)(n / 2 + d / kv_group(d) * (values ? 4 : 2) * KV_PAGE);
        uint8_t *block = buffer(size);
        (values ? seal_values_i4 : seal_keys_i4)(x, d, block);
        same(block, block, size);
        size = (size_t)(n / 2 + 4 * d);
        block = buffer(size);
        seal_channels_i4(x, d, values, block);
        same(block, block, size);
        size = (size_t)(n / 8 + 2 * KV_PAGE);
        block = buffer(size);
        seal_binary(x, d, values, block);
        same(block, block, size);
        unpack_binary(block, d, values, i8);
        same(i8, i8, (size_t)(n + 2 * KV_PAGE));
        size = (size_t)(n + 2 * KV_PAGE);
        block = buffer(size);
        seal_fp8(x, d, values, block);
        same(block, block, size);
        unpack_fp8(block, d, half);
        same(half, half, (size_t)n * 2);
    }
    fill_float(y, d, kind);
    hadamard(y, d);
    same(y, y, (size_t)d * 4);
    free_buffers();
}

static void all_attention(void)
{
    static const int dims[] = {4, 8, 12, 20, 36, 60, 64, 96, 100, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int n_q = 1; n_q <= 9; n_q++) {
            test_attend_f16(dims[i], n_q, masks[rnd() % N_MASK], 0);
            test_attend_i8(dims[i], n_q, masks[rnd() % N_MASK], 0, I8_UNIFORM);
        }
    for (int i = 0; i < N_MASK; i++) {
        test_attend_f16(64, 4, masks[i], 0);
        test_attend_i8(64, 4, masks[i], 0, I8_UNIFORM);
    }
    for (int t = 0; t < KV_PAGE; t++) {
        test_attend_f16(12, 3, 1u << t, 0);
        test_attend_i8(12, 3, 1u << t, 0, I8_UNIFORM);
    }
    for (int kind = 0; kind < 5; kind++)
        test_attend_f16(96, 5, 0xffffffffu, kind);
    for (int kind = 0; kind < 6; kind++)
        for (int q = 0; q < N_I8; q++)
            test_attend_i8(128, 4, 0xffffffffu, kind, q);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (int n_q = 1; n_q <= 5; n_q++)
            test_nibbles(dims[i], n_q, 0, I8_UNIFORM);
    for (int kind = 0; kind < 4; kind++)
        for (int q = 0; q < N_I8; q++)
            test_nibbles(128, 4, kind, q);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        test_pages(dims[i], UNIFORM), test_packed(dims[i], UNIFORM);
    for (int kind = 0; kind < N_FLOATS; kind++)
        test_pages(64, kind), test_packed(64, kind);
}

/* ----------------------------------------------------------------------------------------------------------------- */

static void run(const struct kernels *target)
{
    long passed_before = passed, failed_before = failed;
    K = target;
    state = 0x9e3779b97f4a7c15ull;
    digest = 0xcbf29ce484222325ull;
    all_ternary();
    all_groups();
    all_ternary_planes();
    for (int i = 0; i < N_LENGTH; i++)
        for (int kind = 0; kind < N_FLOATS; kind++) {
            test_quantize(lengths[i], kind);
            test_elementwise(lengths[i], kind);
        }
    for (int n_rot = 2; n_rot <= 40; n_rot += 2)
        test_rope(n_rot, n_rot + (n_rot % 3) * 4);
    test_rope(100, 100);
    test_rope(128, 128);
    for (int k = 1; k <= 67; k += k < 34 ? 1 : 11)
        test_head(1 + k % 9, k, 0);
    for (int kind = 0; kind < 3; kind++) {
        test_head(5, 2560, kind);
        test_head(4, 2048, kind); /* the longest row whose sum is an int32 */
        test_head(4, 2080, kind);
        test_head(4, 4096, kind); /* the longest of which half the sum is one */
        test_head(37, 4128, kind); /* more than a panel */
        test_head(7, 608, kind); /* blocks that do not fill the lanes */
        test_head(5, 35001, kind); /* beyond every flush of int32 sums */
    }
    for (int n_x = 1; n_x <= 17; n_x++)
        for (int n_row = 1; n_row <= 9; n_row += n_x % 4 ? 4 : 1)
            test_planes(n_row, 512 + 512 * (n_x % 3), n_x, (n_x + n_row) % (2 * N_I8));
    test_planes(40, 512, 2, I8_UNIFORM);
    test_planes(61, 2560, 1, I8_UNIFORM); /* a list longer than what is asked for ahead */
    for (int kind = 0; kind < 2 * N_I8; kind++)
        test_planes(3, 2560, 2, kind);
    test_halves();
    if (K == S)
        test_expf();
    all_bases();
    all_delta();
    all_attention();
    printf("%-12s %ld passed, %ld failed, digest %016llx\n", target->name, passed - passed_before,
           failed - failed_before,
           (unsigned long long)digest);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int n;
    const struct kernels *const *targets = kernels_all(&n);
    if (argc > 1 && strcmp(argv[1], "--digest") == 0) {
        S = NULL;
        argc--, argv++;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n; i++)
            printf("%s %s\n", targets[i]->name, kernels_supported(targets[i]) ? "supported" : "unsupported");
        printf("best %s\n", kernels_best()->name);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        const struct kernels *target = kernels_named(argv[i]);
        if (!target || !kernels_supported(target)) {
            fprintf(stderr, "harness: target %s is not %s here\n", argv[i], target ? "supported" : "known");
            return 3;
        }
        run(target);
    }
    for (int i = 0; argc == 1 && i < n; i++)
        if (kernels_supported(targets[i]))
            run(targets[i]);
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}
