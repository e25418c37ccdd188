/* kernels.h: what each kernel computes.
 *
 * Plain C11, no Python.h.  A target is one instruction set's version of all kernels (struct kernels).  The scalar
 * target is the specification.  Every other target gives the same bits: integer sums are exact; every float loop is
 * either element-wise or reduced in the fixed order written here, without fused multiply-add (all files are built with
 * -ffp-contract=off) and with one shared polynomial for exp.
 *
 * dispatch.c chooses the target once, from HWCAP or cpuid.  Kernels do not allocate and do not fail: the callers in
 * pyx/ validate all shapes.
 *
 * Packed ternary row ("blocks"): K padded to a multiple of 128 with code 1 (weight 0).  A block of 128 codes is
 * 32 bytes: byte p (0..31) holds element p in bits 7-6, p+32 in bits 5-4, p+64 in bits 3-2, p+96 in bits 1-0;
 * code = weight + 1.  This is the official I2_S layout.  Pointers may be unaligned (memory-mapped files).
 */
#ifndef BITNET_EDGE_KERNELS_H
#define BITNET_EDGE_KERNELS_H

#include <stdint.h>

/* Dimensions that share a scale in 4-bit blocks: the largest divisor of head_dim (a multiple of 4) that is a multiple
 * of 4 and at most 32. */
static inline int64_t kv_group(int64_t head_dim)
{
    int64_t group = 32;
    while (head_dim % group)
        group -= 4;
    return group;
}

/* Where element e of a group of activations stands: in groups of 128 element 4p + f at 32f + p, as the codes of a byte
 * of stored rows are separated; smaller groups, which only panels have, keep their order. */
static inline int place_in_group(int group, int e) { return group == 128 ? e % 4 * 32 + e / 4 : e; }

enum {
    TERNARY_BLOCK = 128,      /* codes per block                                  */
    TERNARY_BLOCK_BYTES = 32, /* bytes per block                                  */
    KV_PAGE = 32,             /* tokens per KV page                               */
    MAX_HEAD_DIM = 4096,      /* of KV pages                                      */
    FLOAT_LANES = 16,         /* lanes of every float reduction                   */
    BYTE_DOTS_MOST = 8,       /* vectors that byte_dots takes at a time                           */
    HEAD_XMAX = 8191,         /* activations of the int8 head are int16 in +-8191 */
    Q8_BLOCK = 32,            /* weights of a block of Q8_0                       */
    Q8_BLOCK_BYTES = 34,      /* half d, int8 q[32]: weight = q * d               */
    GROUP = 128,              /* weights that share a scale, see group_matmul     */
    GROUP_WHOLE = 34,         /* bytes of a group: half d, codes[32]              */
    GROUP_PAIR = 36,          /* half d, codes[16], the same d again, codes[16]   */
    GROUP_WORK = 51200,       /* bytes of working memory of group_matmul          */
    PANEL_ROWS = 64,          /* rows of a panel, see panel_matmul                */
    MOST_PLANES = 4,          /* matrices whose sum is one, see panel_matmul      */
    BIT_BLOCK = 512,              /* codes of a row of bit planes come in blocks      */
    CONV_TAPS = 4,            /* inputs of conv_silu, itself and those before it  */
    DELTA_CHUNK = 32,         /* tokens between two states, see delta_chunk       */
    DELTA_STRIP = 16,         /* columns of a state that lie side by side         */
    MAX_DELTA_DIM = 256,      /* rows and columns of a state                      */
    LEAST_BASIS = 16,         /* smallest block of change_basis                   */
};

/* Bytes of a group of a panel: 64 half scales and the codes of `group` weights of 64 rows. */
#define PANEL_BYTES(group) (PANEL_ROWS * (2 + (group) / 4))

/* Bytes of working memory of ternary_matmul, as a function of the rows: tables, then sums and offsets (lookup.inc.h),
 * or what is laid out anew (packs.inc.h). */
#define MATMUL_WORK(n_row) (36864 + 320 * (n_row))

/* Rows that ternary_matmul gets at once for many tokens: what it prepares for a pass serves all of them, and their sums
 * stay in the second-level cache.  On x86-64 half of them may be multiplied while the others are looked up
 * (lookup.inc.h). */
#if defined(__x86_64__)
enum { MANY_ROWS = 2 * 1728 };
#else
enum { MANY_ROWS = 1728 };
#endif

/* The same for fewer: their sums stay in the first-level cache; i8mm lays the tokens out once for these rows. */
#if defined(__x86_64__)
enum { FEW_ROWS = 64 };
#else
enum { FEW_ROWS = 256 };
#endif

/* The best way to read weights on a machine cannot be known before it is measured (edge/machine/ways.py); answers are the same bits
 * with any values. */
struct kernels_choices {
    int rows;      /* most rows of weights that are read side by side: 1, 2 or 4 */
    int fetch;     /* how what comes next is fetched: FETCH_L1, ... */
    int64_t ahead; /* bytes by which it is fetched ahead */
};
/* In the order of memory, `ahead` bytes after the rows that are read now: into the first-level cache; the same, but to
 * be replaced first; into the second level.  Or row by row, `ahead` bytes after what is read of each, into the
 * second level. */
enum { FETCH_L1, FETCH_ONCE, FETCH_L2, FETCH_ROWS };
extern struct kernels_choices kernels_chosen __attribute__((visibility("hidden")));

/* Choose.  Not while a kernel runs. */
void kernels_choose(struct kernels_choices choices);

struct kernels {
    const char *name;    /* "scalar", "avx2", ... as in BITNET_EDGE_ISA */
    struct kernels_choices own; /* how weights are read unless it was measured */
    int64_t many_tokens; /* from so many on, at least 16, call ternary_matmul with MANY_ROWS rows */
    int64_t byte_vectors; /* from so many on, byte_dots of upper bytes first is faster than head_i8; 0: never */

    /* ---- ternary matrices: exact integers -------------------------------------------------------------------- */

    /* acc[r] = sum_k code[r][k] * x[k]   (codes unsigned 0..3; the caller subtracts sum(x) once per row)
     * codes [n_row][n_block*32], x [n_block*128] int8 in +-127 and 0 beyond K, acc [n_row] */
    void (*ternary_matvec)(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int32_t *acc);

    /* The same for n_token activation rows: acc[t*ld_acc + r]; x [n_token][n_block*128].  Unpacks a weight block
     * once for several tokens.  work: MATMUL_WORK(n_row) bytes to write on, aligned to 64. */
    void (*ternary_matmul)(const uint8_t *codes, int64_t n_row, int64_t n_block, const int8_t *x, int64_t n_token,
                           int32_t *acc, int64_t ld_acc, void *work);

    /* ---- ternary matrices with a scale for each group of 128 weights along K --------------------------------------
     *
     * A row is n_group groups.  weight = d * (code - 1), d a half, and element e of a group is bits 2(e%4) .. 2(e%4)+1
     * of byte e/4 of its codes.  group_bytes gives their layout: GROUP_WHOLE (PQ2_0 in files) or GROUP_PAIR (Q2_0).
     * Codes may be 3 in a corrupt file, d any half: nothing overflows and every target gives the same numbers, though
     * the bits of a NaN may differ. */

    /* Activations for them, in groups of 32, 64 or 128: per group m = max|x|,
     * q = round_half_even(x * (127 / max(m, 1e-30))) clamped to +-127, d = m / 127, sum = sum(q).  Beyond n, up to a
     * whole group, x is 0.  In q element e of a group stands at place_in_group(group, e).
     * q [n_group*group], d and sum [n_group] */
    void (*quantize_groups)(const float *x, int64_t n, int group, int8_t *q, float *d, int32_t *sum);

    /* y[t][r] = sum over groups g, ascending, from 0 on, of (float)(sum_e code * q - sum[t][g]) * (d[r][g] * d[t][g]);
     * out[t * ld_out + r] = y, or += y with add.
     * q [n_token][n_group*128], d and sum [n_token][n_group]; work: GROUP_WORK bytes aligned to 64, for n_token > 1 */
    void (*group_matmul)(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, const int8_t *q,
                         const float *d, const int32_t *sum, int64_t n_token, int add, float *out, int64_t ld_out,
                         void *work);

    /* The same of rows [row0, row1) of panels, in groups of 32, 64 or 128: y[t][r] goes to out[t * ld_out + r - row0].
     * 64 rows are a panel of groups, each half d[64] and codes [group/4][16][4]: bits 2f .. 2f+1 of byte b of lane i of
     * step s are the code of row 16f + i for q[4s + b] of the group.  A matrix that is the sum of n_plane ternary ones
     * (planes) has a group of each plane for every group of activations, side by side: n_group * n_plane groups, added
     * in this order. */
    void (*panel_matmul)(const uint8_t *panels, int64_t row0, int64_t row1, int64_t n_group, int group, int n_plane,
                         const int8_t *q, const float *d, const int32_t *sum, int64_t n_token, int add, float *out,
                         int64_t ld_out);

    /* ---- activations ------------------------------------------------------------------------------------------ */

    /* BitNet activation quantisation: s = 127 / max(max|x|, 1e-5); q = clamp(round_half_even(x*s), -127, 127);
     * q[n..n_pad) = 0; *sum = sum(q).  Returns s.  (transformers integrations/bitnet.py, ActQuant) */
    float (*quantize_i8)(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum);

    /* out = x / sqrt(mean(x^2) + eps) * w.  The sum of squares runs in double over FLOAT_LANES lanes
     * (lane i takes elements i, i+16, ...), then lanes are added pairwise (i, i+8), (i, i+4), (i, i+2), (i, i+1).
     * out may be x.  The factor is (float)(1.0 / sqrt(ms + eps)); the order of products is (x * factor) * w. */
    void (*rmsnorm)(const float *x, const float *w, float eps, int64_t n, float *out);

    /* gate: out[i] = act(gate[i]) * up[i]; out may be gate */
    void (*gate_relu2)(const float *gate, const float *up, int64_t n, float *out);
    void (*gate_silu)(const float *gate, const float *up, int64_t n, float *out);
    /* GELU by tanh: x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))); GELU_1 and GELU_3 are those factors */
    void (*gate_gelu)(const float *gate, const float *up, int64_t n, float *out);
    /* act(x) = 1 / (1 + exp(-x)) */
    void (*gate_sigmoid)(const float *gate, const float *up, int64_t n, float *out);

    /* Rotary embedding in place on one head vector x [head_dim]; cs, sn [n_rot/2].
     * half: pairs (j, j + n_rot/2) (GPT-NeoX, Hugging Face); interleaved: pairs (2j, 2j+1) (GGUF arch llama).
     * a' = a*cs - b*sn; b' = b*cs + a*sn; elements beyond n_rot stay. */
    void (*rope_half)(float *x, int64_t n_rot, const float *cs, const float *sn);
    void (*rope_interleaved)(float *x, int64_t n_rot, const float *cs, const float *sn);

    /* The sums of a matvec as floats: y = (float)(acc[r] - sum) / s * scale[step * r], step 0 (one scale for all rows)
     * or 1; out[r] = y, or out[r] += y with add.  sum and s are those of quantize_i8. */
    void (*scale_sums)(const int32_t *acc, int64_t n, int32_t sum, float s, const float *scale, int64_t step, int add,
                       float *out);

    /* ---- rotated bases ---------------------------------------------------------------------------------------- */

    /* out = after * H (before * x), H the orthonormal Walsh-Hadamard transform of each block (Sylvester's order):
     * steps half = 1, 2, 4 .. block / 2 of (a, b) -> (a + b, a - b) for a in places without that bit and b in the place
     * with it; then times (float)(1 / sqrt(block)).  before, after [n] or NULL (ones).  block: a power of two, at least
     * LEAST_BASIS, that divides n.  out may be x. */
    void (*change_basis)(const float *x, const float *before, const float *after, int64_t n, int64_t block, float *out);

    /* ---- gated delta rule: layers with a state instead of keys and values ------------------------------------------
     *
     * S' = g S + k d^T, d = beta (v - g S^T k), o = S'^T q: a state S [dk][dv] forgets (g), is asked what it has for
     * key k, and stores what value v differs from that.  It is written once for each chunk of DELTA_CHUNK tokens, which
     * begin at multiples of that in the text; between, answers come from S as it was at the beginning of the chunk and
     * from what its tokens add.  So a token's numbers do not depend on how many are processed at once, a state is
     * written 32 times less often, and going back within a chunk costs nothing.
     *
     * Layout: columns in strips, S [dv/16][dk][16] and d [dv/16][32][16]; k [32][dk].  dk and dv are multiples of 16,
     * at most MAX_DELTA_DIM.  c [32]: sum of ln g from the beginning of the chunk on, a token's own included. */

    /* out[i] = y / (1 + exp(-y)), y = x[0][i] w[0][i] + .. + x[3][i] w[3][i], added in this order; x [CONV_TAPS][n],
     * the newest input last; w [CONV_TAPS][n] */
    void (*conv_silu)(const float *const *x, const float *w, int64_t n, float *out);

    /* Tokens t in [first, first + n) of a chunk, whose k and c are there; gives their d and o.  With
     * r(s) = exp((float)(c[t] - c[s])) and e = exp((float)c[t]):
     *   y[j] = e * (sum_i S[i][j] * k[t][i]) + sum_{s < t} (r(s) * (k[t] . k[s])) * d[s][j]
     *   d[t][j] = beta[t] * (v[t][j] - y[j])
     *   o[t][j] = e * (sum_i S[i][j] * q[t][i]) + sum_{s <= t} (r(s) * (q[t] . k[s])) * d[s][j]
     * i and s ascending, sums from 0 on; dots in FLOAT_LANES lanes with the pairwise tree of rmsnorm.
     * q, v, beta and o are those of token first, a row of each token ld_q, ld_v, ld_beta, ld_o floats on. */
    void (*delta_chunk)(const float *state, int64_t dk, int64_t dv, int64_t first, int64_t n, const float *k,
                        const double *c, const float *q, int64_t ld_q, const float *v, int64_t ld_v, const float *beta,
                        int64_t ld_beta, float *d, float *o, int64_t ld_o);

    /* The state after a full chunk: to[i][j] = exp((float)c[31]) * S[i][j] + sum_s (r(s) * k[s][i]) * d[s][j], r(s) as
     * above with t = 31, s ascending.  to may be state. */
    void (*delta_seal)(const float *state, int64_t dk, int64_t dv, const float *k, const double *c, const float *d,
                       float *to);

    /* ---- output head ------------------------------------------------------------------------------------------ */

    /* int16 activations for the int8 head: s = HEAD_XMAX / max(max|x|, 1e-30), q = round_half_even(x*s). Returns s. */
    float (*quantize_i16)(const float *x, int64_t n, int16_t *q);
    /* For n_x vectors x [n_x][k] with s [n_x], rows read from memory once for all of them:
     * logits[j][r] = (float)(int64 sum_k w[r][k]*x[j][k]) * (scale[r] / s[j])   w [n_row][k] */
    void (*head_i8)(const int8_t *w, const float *scale, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x,
                    const float *s, float *const *logits);
    /* The same over rows of Q8_0 blocks as a file stores them, k a multiple of 32: lane b % FLOAT_LANES gains
     * (float)(int32 sum of block b of w[r][k]*x[j][k]) * d, b ascending; logits[j][r] = pairwise tree as in rmsnorm
     * / s[j] */
    void (*head_q8_0)(const uint8_t *w, int64_t n_row, int64_t k, const int16_t *x, int64_t n_x, const float *s,
                      float *const *logits);
    /* logits[r] = sum_k w[r][k]*x[k] in FLOAT_LANES float lanes, pairwise tree as in rmsnorm; tail elements go to
     * the first lanes */
    void (*head_f16)(const uint16_t *w, int64_t n_row, int64_t k, const float *x, float *logits);
    void (*head_f32)(const float *w, int64_t n_row, int64_t k, const float *x, float *logits);

    /* Quantise one row to int8 by its largest: m = max|w|, scale = m / 127, q = round_half_even(w * (127 / m)), so
     * |q| <= 127.  Rows under 1e-30 give codes 0.  (One division a row: one for each weight took three quarters of the
     * time in which a head is made.) */
    void (*quantize_row_i8)(const float *w, int64_t k, int8_t *q, float *scale);

    /* Rows of unsigned codes of four bits or one against n_x int8 vectors, exact integers:
     * acc[j*ld + r] = sum_i u[r][i] * x[j][i];  x [n_x][k], k a multiple of BIT_BLOCK, at most 2^20
     * nibbles [n_row][k/2]: byte 64 b + p holds element 128 b + p in bits 3-0 and element 128 b + 64 + p in bits 7-4
     * bits [..][k/8]: bit b of byte 64 i + p is element 512 i + 64 b + p                             (p = 0..63)
     * The bits are those of rows list[0 .. n_row), which need not be neighbours. */
    void (*nibble_dots)(const uint8_t *nibbles, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *acc,
                        int64_t ld);
    void (*bit_dots)(const uint8_t *bits, const int32_t *list, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x,
                     int32_t *acc, int64_t ld);
    /* Rows w [n_row][k] of int8 against n_x <= BYTE_DOTS_MOST vectors x [n_x][k] of |x| <= 127, read from memory once
     * for all of them: sums[j][r] = sum_i w[r][i] * x[j][i], exact integers for k up to 2^17. */
    void (*byte_dots)(const int8_t *w, int64_t n_row, int64_t k, const int8_t *x, int64_t n_x, int32_t *const *sums);

    /* ---- conversions ------------------------------------------------------------------------------------------ */
    void (*half_to_float)(const uint16_t *x, int64_t n, float *y);
    void (*float_to_half)(const float *x, int64_t n, uint16_t *y); /* round to nearest even */

    /* ---- attention over one KV page ----------------------------------------------------------------------------
     *
     * A page holds 32 tokens of one KV head: a block of keys, then a block of values, each of its own element type.
     * All blocks are little endian and a multiple of 64 bytes.
     *
     *   type  keys                                       values
     *   f32   float k[D][32]                             float v[32][D]
     *   f16   half k[D][32]                              half v[32][D]
     *   i8    int8 k[D/4][32][4], half ks[32]            int8 v[8][D][4], half vs[32]        codes in +-127
     *
     *   i4    u8 k[D/4][16][4], half ks[D/g][32]         u8 v[4][D][4], half vs[D/g][32], half vm[D/g][32]
     *   i4c   u8 k[D/4][16][4], half ks[D], half km[D]   u8 v[4][D][4], half vs[D], half vm[D]
     *
     * i4, a scale per token and group of g = kv_group(D) dimensions; i4c, per channel (dimension) of the page.  The low
     * nibble of a byte belongs to token t, the high one to token t + 16: k[..][t][..], v[t/4][..][t%4], t < 16.
     * Keys of i4 are symmetric: (nibble - 8) * ks; all others run from a least value: vm + nibble * vs.
     *
     * Tokens are lanes: k[..][32][..] is one dimension (or four) of all tokens, so no sum crosses lanes.
     *
     * Attention is three steps over n_q queries q [n_q][D] (the query heads that share this KV head; they carry the
     * factor 1/sqrt(D) already): scores s [n_q][32], softmax, values.  valid: bit t set means token t is attended
     * (valid != 0).  The state m [n_q] running maximum (starts at -INFINITY), l [n_q] running sum (0), o [n_q][D]
     * unnormalised output (0) goes from page to page.
     *
     * next: the block of the same type that will be read after this one, to be fetched meanwhile; any readable block
     * of that size will do. */

    /* s[t] = sum_d q[d] * k[d][t], d ascending, start 0 */
    void (*score_f16)(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s);
    void (*score_f32)(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s);
    /* s[t] = (float)(int32 sum_d q[d] * k[d][t]) * (ks[t] * qs); q, qs from quantize_q */
    void (*score_i8)(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s);
    /* Per group: s[t] += (float)(int32 sum_{d in group} q[d] * (nibble - 8)) * ks[group][t], groups ascending,
     * start 0; then s[t] *= qs */
    void (*score_i4)(const void *k, const void *next, int64_t head_dim, int64_t n_q, const int8_t *q, const float *qs,
                     float *s);
    /* The scales are folded into the query: x[d] = q[d] * ks[d]; top = max |x|, unit = top / 127,
     * q8[d] = round_half_even(x[d] * (127 / top)) (unit 0 and codes 0 unless top > 1e-30);
     * base = lane tree sum of q[d] * (km[d] + 8 * ks[d]) (lane i takes d = i, i + 16, ...);
     * s[t] = (float)(int32 sum_d q8[d] * (nibble - 8)) * unit + base */
    void (*score_i4c)(const void *k, const void *next, int64_t head_dim, int64_t n_q, const float *q, float *s);

    /* m' = max(m, max over valid t of s[t]), -0 taken as +0
     * if m' > m: c = kernel_expf(m - m') (0 if m is -inf); l *= c; o *= c; m = m'
     * s[t] = p[t] = kernel_expf(s[t] - m') for valid t, else 0
     * l += lane tree sum of p (16 lanes: lane i = p[i] + p[i+16], then the pairwise tree) */
    void (*softmax_page)(int64_t head_dim, int64_t n_q, uint32_t valid, float *s, float *m, float *l, float *o);

    /* o[d] += p[t] * v[t][d], t ascending (all t; p is 0 where not valid) */
    void (*value_f16)(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o);
    void (*value_f32)(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o);
    /* w[t] = p[t] * vs[t]; top = max w, unit = top / 255, u[t] = round_half_even(w[t] * (255 / top)) (unit 0 and u 0
     * unless top > 1e-30, so that 255 / top is finite);
     * o[d] += (float)(int32 sum_t u[t] * v[t][d]) * unit */
    void (*value_i8)(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o);
    /* u and unit as before, per group, of w[t] = p[t] * vs[group][t]; base = lane tree sum of p[t] * vm[group][t];
     * o[d] += (float)(int32 sum_t u[t] * nibble) * unit + base */
    void (*value_i4)(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o);
    /* u and unit as before of w[t] = p[t]; all = lane tree sum of p;
     * o[d] += (float)(int32 sum_t u[t] * nibble) * unit * vs[d] + vm[d] * all */
    void (*value_i4c)(const void *v, const void *next, int64_t head_dim, int64_t n_q, const float *p, float *o);

    /* Seal: quantise a full f16 block, once.  Per token: scale = half(max|x| / 127) and
     * q = clamp(round_half_even(x / float(scale)), -127, 127); scale 0 gives codes 0. */
    void (*seal_keys_i8)(const uint16_t *k, int64_t head_dim, void *block);
    void (*seal_values_i8)(const uint16_t *v, int64_t head_dim, void *block);
    /* int8 query: qs = max|q| / 127, q8 = clamp(round_half_even(q / qs), -127, 127), or 0 for qs 0.  Returns qs. */
    float (*quantize_q)(const float *q, int64_t n, int8_t *q8);
};

/* These members of struct kernels as every target defines them: by functions of the same names. */
#define KERNEL_FUNCTIONS                                                                                               \
    .ternary_matvec = ternary_matvec, .ternary_matmul = ternary_matmul, .quantize_groups = quantize_groups,            \
    .group_matmul = group_matmul, .panel_matmul = panel_matmul, .quantize_i8 = quantize_i8, .rmsnorm = rmsnorm,        \
    .gate_relu2 = gate_relu2, .gate_silu = gate_silu, .gate_gelu = gate_gelu, .gate_sigmoid = gate_sigmoid,            \
    .rope_half = rope_half, .rope_interleaved = rope_interleaved, .scale_sums = scale_sums,                            \
    .change_basis = change_basis, .conv_silu = conv_silu, .delta_chunk = delta_chunk, .delta_seal = delta_seal,        \
    .quantize_i16 = quantize_i16, .head_i8 = head_i8, .head_q8_0 = head_q8_0, .head_f16 = head_f16,                    \
    .head_f32 = head_f32, .quantize_row_i8 = quantize_row_i8, .nibble_dots = nibble_dots, .bit_dots = bit_dots,        \
    .byte_dots = byte_dots, .half_to_float = half_to_float, .float_to_half = float_to_half,                            \
    .score_f16 = score_f16, .score_f32 = score_f32, .score_i8 = score_i8, .score_i4 = score_i4,                        \
    .score_i4c = score_i4c, .softmax_page = softmax_page, .value_f16 = value_f16, .value_f32 = value_f32,              \
    .value_i8 = value_i8, .value_i4 = value_i4, .value_i4c = value_i4c, .seal_keys_i8 = seal_keys_i8,                  \
    .seal_values_i8 = seal_values_i8, .quantize_q = quantize_q

extern const struct kernels kernels_scalar; /* the specification; the other targets: TARGETS of setup.py */

/* dispatch.c */
/* All targets of this build, best last; *n is their number. */
const struct kernels *const *kernels_all(int *n);
/* 1 if the processor and the operating system can run this target. */
int kernels_supported(const struct kernels *target);
/* The best supported target, chosen once. */
const struct kernels *kernels_best(void);
/* By name; NULL if this build has none. */
const struct kernels *kernels_named(const char *name);
/* 1 for the name of a target of any architecture. */
int kernels_known(const char *name);

/* kernel_expf, half_float, float_half: static inline in numbers.h. */

/* repack.c: other packings -> our rows of blocks.  codes out [n_row][n_block*32], padding code 1. */
void repack_i2s_128(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes); /* flat stream, any k          */
void repack_i2s_64(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes);
void repack_i2s_1x4(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes); /* n_row % 4 == 0              */
void repack_hf(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes);      /* [n_row/4][k], n_row % 4 == 0 */
/* Q2_0 and PQ2_0 have the layout that group_matmul reads if K is a multiple of 128.  Else repack_q2_0: k % 64 == 0 ->
 * GROUP_WHOLE.  group_faults of n groups: 1 if the two scales of a pair differ, 2 if a scale is not finite, else 0. */
int group_faults(const uint8_t *rows, int group_bytes, int64_t n);
/* The same of n groups of panels: 2 if a scale is not finite, else 0. */
int panel_faults(const uint8_t *panels, int group, int64_t n);
void repack_q2_0(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *groups);
/* n groups of Q1_0, in blocks of 128 or 32 weights (a half d, then bits, low ones first: 1 is +d, 0 is -d) ->
 * GROUP_WHOLE, codes 2 and 0.  Returns 1 if the scales of a group differ, else 0. */
int repack_q1_0(const uint8_t *src, int block, int64_t n, uint8_t *groups);
/* Our rows of blocks and a scale for every `share` blocks of a row, scale_step floats from row to row -> GROUP_WHOLE */
void repack_groups(const uint8_t *codes, int64_t n_row, int64_t n_block, const float *scale, int64_t scale_step,
                   int64_t share, uint8_t *groups);
/* Rows of groups -> panels, the last one filled up with zeros */
void pack_panels(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t n_group, uint8_t *panels);
void unpack_groups(const uint8_t *rows, int group_bytes, int64_t n_row, int64_t k, int8_t *dst, float *d);
/* Planes: weights -1, 0, +1 [n_plane][n_row][k] with scales d [n_plane][n_row][k/group] -> panels, the last one filled
 * up with zeros, k a multiple of group; and back, any k.  Scales are rounded to half. */
void pack_plane_panels(const int8_t *weights, const float *d, int n_plane, int64_t n_row, int64_t k, int group,
                       uint8_t *panels);
void unpack_plane_panels(const uint8_t *panels, int n_plane, int64_t n_row, int64_t k, int group, int8_t *weights,
                         float *d);
/* Ternary types with scales in blocks or in front of rows; the last has no name. */
struct ternary_type {
    const char *name;
    int span, bytes;    /* weights of a block, and its bytes */
    int before_row;     /* bytes in front of the blocks of a row, which hold its scale; 0: each block holds one */
    int together;       /* rows that are stored side by side */
    /* k % span == 0, n_row % together == 0 -> codes, and the scales d [n_row][k/span], or [n_row] */
    void (*repack)(const uint8_t *src, int64_t n_row, int64_t k, uint8_t *codes, float *d);
};
extern const struct ternary_type ternary_types[];
void repack_i8(const int8_t *src, int64_t n_row, int64_t k, uint8_t *codes);       /* weights -1, 0, +1           */
void unpack_i8(const uint8_t *codes, int64_t n_row, int64_t k, int8_t *dst);       /* back to -1, 0, +1 (, +2)    */
/* Absmean (float32): a = max(mean|w|, 1e-5) over the matrix; code = clamp(round_half_even(w * (1/a)), -1, 1).
 * mean is accumulated in double.  Returns a. */
float absmean(const float *w, int64_t n_row, int64_t k, uint8_t *codes);

/* bandwidth.c: the sum of n words, modulo 2^64.  Each of n_thread threads reads one run of memory, as in a matrix-vector
 * product: in order and nothing else; in order, with lines fetched ahead into the first level, the same to be replaced
 * first, or the second level; or four runs side by side. */
enum { READ_PLAIN, READ_L1, READ_ONCE, READ_L2, READ_STREAMS };
uint64_t sum_words(const uint64_t *x, int64_t n, int n_thread, int way);

/* fit_planes.c: a row w [k]; each group g of n weights (n <= GROUP) as the sum over p of
 * scale[p * scale_stride + g] * code[p * stride + i], codes -1, 0, 1, with the least sum of error^2 that was found.
 * Scales are half precision numbers >= 0, the largest first.  Returns that sum over all groups; negative if a scale
 * would be beyond half precision or a weight is not finite. */
double fit_planes(const float *w, int64_t k, int n, int n_plane, float *scale, int64_t scale_stride, int8_t *code,
                  int64_t stride);

/* a48.c: activations of BitNet a4.8; see there.  As quantize_i8, but s = sqrt(7) / (mean|x| + 1e-5) and codes -8..7. */
float quantize_i4(const float *x, int64_t n, int8_t *q, int64_t n_pad, int32_t *sum);
/* Of n codes in +-127 keeps the ceil(n/2) of largest magnitude, and all that equal the smallest of these; the others
 * become 0.  *sum = sum(q). */
void keep_larger_half(int8_t *q, int64_t n, int32_t *sum);

/* split_bits.c: a row of k int8 codes -> bit planes of u = code + 128 (in place in codes [k_pad], padded with 0), in
 * the packings of nibble_dots and bit_dots: nibbles [k_pad/2], and bits 3, 2, 1, 0 to bits + 0 .. 3 * stride, k_pad/8
 * each.  norm[i]: upper bound of the Euclidean norm of (u mod 2^b) - (2^b - 1)/2 over the k
 * codes, b = 4, 3, 2. */
void split_bits(uint8_t *codes, int64_t k, int64_t k_pad, uint8_t *nibbles, uint8_t *bits, int64_t stride,
                float norm[3]);

/* The same of bits 3 and 2, for codes that only stand for numbers w [k] near scale * code, |w| <= 127 scale: norm[i] is an upper bound
 * of the norm of w / scale - (the middle of the codes that b unread bits leave), INFINITY where w is not finite. */
void split_bits_near(const float *w, float scale, uint8_t *codes, int64_t k, int64_t k_pad, uint8_t *nibbles,
                     uint8_t *bits, int64_t stride, float norm[3]);

/* packed_page.c: f16 blocks -> blocks of fewer bits, once, and back to blocks that struct kernels reads.  values: the
 * block is one of values, else of keys.
 *   i4 keys   per group: scale0 = half(x / -8) of the x of largest magnitude, code = clamp(round(x / scale0), -8, 7),
 *             ks = half(sum(x^3 code) / sum(x^2 code^2)): least squares, large elements weighing more
 *             (ik_llama.cpp #1547).  12 % less error than +-7 of max / 7; an element of the other sign may be off by a
 *             whole step.
 *   ranges    least = min, scale = half((max - min) / 15), code = round((x - least) / scale).
 *   binary    u8 signs[D][4], keys and values: bit t % 8 of byte t / 8 of signs[d] is 1 where x < 0; then half
 *             scale[32] = mean |x| of the token.  Unpacked: i8.
 *   fp8       u8 k[D][32] or v[32][D] E4M3, saturating, half to even; half scale[32] = max|x| / 448 of the token.
 *             Unpacked: f16, 2^-8 of the codes and without the scales, which scale_fp8 makes up for. */
void seal_keys_i4(const uint16_t *k, int64_t head_dim, void *block);
void seal_values_i4(const uint16_t *v, int64_t head_dim, void *block);
void seal_channels_i4(const uint16_t *x, int64_t head_dim, int values, void *block);
void seal_binary(const uint16_t *x, int64_t head_dim, int values, void *block);
void unpack_binary(const void *block, int64_t head_dim, int values, void *i8);
void seal_fp8(const uint16_t *x, int64_t head_dim, int values, void *block);
void unpack_fp8(const void *block, int64_t head_dim, uint16_t *f16);
uint8_t float_e4m3(float x);
/* s [n_q][32] *= 2^8 * scale [32] */
void scale_fp8(const uint16_t *scale, int64_t n_q, float *s);
/* Orthonormal fast Walsh-Hadamard transform over blocks of the largest power of two that divides n; below 16 nothing.
 * Its own inverse; q . k stays as it is when both are transformed. */
void hadamard(float *x, int64_t n);

/* dequantize.c: the types whose rows are decoded one by one; the last has no name. */
struct row_type {
    const char *name;
    int span, bytes;    /* values of a block, and its bytes */
    int levels;         /* values that a code can have: 2, 4 (two bits); 0: floats */
    int together;       /* rows that are stored side by side: 64 in panels */
    /* One row as floats, out [k], k a multiple of span.  rows: where the rows side by side begin; row: one of them. */
    void (*decode)(const uint8_t *rows, int64_t row, int64_t k, float *out);
};
extern const struct row_type row_types[];
#endif
