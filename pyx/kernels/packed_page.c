/* packed_page.c: KV blocks of four bits, and those for comparison: sealing, and unpacking to a block that
 * the kernels of the targets read.  Plain C, one for all processors: a page is sealed once in 32 tokens. */
#include "kernels.h"
#include "numbers.h"

#include <string.h>

enum { HALF_PAGE = KV_PAGE / 2 };

/* Byte of token t among nibbles of keys; of values. */
static uint8_t *key_byte(uint8_t *k, int64_t d, int t) { return k + (d / 4 * HALF_PAGE + t % HALF_PAGE) * 4 + d % 4; }

static uint8_t *value_byte(uint8_t *v, int64_t head_dim, int64_t d, int t)
{
    return v + (t % HALF_PAGE / 4 * head_dim + d) * 4 + t % 4;
}

static void put_nibble(uint8_t *byte, int t, int code)
{
    *byte = (uint8_t)(t < HALF_PAGE ? (*byte & 0xf0) | code : (*byte & 0x0f) | code << 4);
}

/* ---- a scale per token and group --------------------------------------------------------------------------------- */

void seal_keys_i4(const uint16_t *k, int64_t head_dim, void *block)
{
    const int64_t group = kv_group(head_dim);
    uint8_t *codes = block;
    uint16_t *ks = (uint16_t *)(codes + head_dim * HALF_PAGE);
    for (int64_t g = 0; g < head_dim; g += group, ks += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            float extreme = 0.0f, num = 0.0f, den = 0.0f;
            for (int64_t d = g; d < g + group; d++) {
                float x = half_float(k[d * KV_PAGE + t]);
                extreme = absf(x) > absf(extreme) ? x : extreme;
            }
            float scale = half_float(float_half(extreme / -8.0f));
            for (int64_t d = g; d < g + group; d++) {
                float x = half_float(k[d * KV_PAGE + t]);
                int32_t q = round_clamped(scale != 0.0f ? x / scale : 0.0f, 8.0f);
                q = q > 7 ? 7 : q;
                put_nibble(key_byte(codes, d, t), t, q + 8);
                num += x * x * x * (float)q;
                den += x * x * (float)(q * q);
            }
            ks[t] = float_half(den > 1e-30f ? num / den : scale);
        }
}

/* 4-bit codes of n numbers from their least to their largest; scale and least as halves. */
static void range_codes(const float *x, int64_t n, uint8_t *code, uint16_t *scale, uint16_t *least)
{
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *least = float_half(low);
    *scale = float_half((high - low) / 15.0f);
    float step = half_float(*scale);
    for (int64_t i = 0; i < n; i++) {
        int32_t q = round_clamped(step > 0.0f ? (x[i] - low) / step : 0.0f, 15.0f);
        code[i] = (uint8_t)(q > 0 ? q : 0);
    }
}

void seal_values_i4(const uint16_t *v, int64_t head_dim, void *block)
{
    const int64_t group = kv_group(head_dim);
    uint8_t *codes = block, code[32];
    uint16_t *vs = (uint16_t *)(codes + head_dim * HALF_PAGE), *vm = vs + head_dim / group * KV_PAGE;
    float x[32];
    for (int64_t g = 0; g < head_dim; g += group, vs += KV_PAGE, vm += KV_PAGE)
        for (int t = 0; t < KV_PAGE; t++) {
            for (int64_t j = 0; j < group; j++)
                x[j] = half_float(v[t * head_dim + g + j]);
            range_codes(x, group, code, vs + t, vm + t);
            for (int64_t j = 0; j < group; j++)
                put_nibble(value_byte(codes, head_dim, g + j, t), t, code[j]);
        }
}

/* ---- a scale per channel ----------------------------------------------------------------------------------------- */

void seal_channels_i4(const uint16_t *x, int64_t head_dim, int values, void *block)
{
    uint8_t *codes = block, code[KV_PAGE];
    uint16_t *scale = (uint16_t *)(codes + head_dim * HALF_PAGE), *least = scale + head_dim;
    float y[KV_PAGE];
    for (int64_t d = 0; d < head_dim; d++) {
        for (int t = 0; t < KV_PAGE; t++)
            y[t] = half_float(values ? x[t * head_dim + d] : x[d * KV_PAGE + t]);
        range_codes(y, KV_PAGE, code, scale + d, least + d);
        for (int t = 0; t < KV_PAGE; t++)
            put_nibble(values ? value_byte(codes, head_dim, d, t) : key_byte(codes, d, t), t, code[t]);
    }
}

/* ---- one bit ----------------------------------------------------------------------------------------------------- */

/* Eight bits as eight bytes of 0 or 1, the lowest first in memory (little endian). */
static uint64_t spread(uint32_t bits)
{
    uint64_t one = (bits & 0xff) * 0x0101010101010101ull & 0x8040201008040201ull; /* byte i keeps its bit i */
    return (one + 0x7f7f7f7f7f7f7f7full) >> 7 & 0x0101010101010101ull;
}

void seal_binary(const uint16_t *x, int64_t head_dim, int values, void *block)
{
    uint8_t *codes = block;
    uint16_t *scale = (uint16_t *)(codes + head_dim * KV_PAGE / 8);
    float sum[KV_PAGE] = {0};
    for (int64_t d = 0; d < head_dim; d++) {
        uint8_t *signs = codes + 4 * d;
        memset(signs, 0, 4);
        for (int t = 0; t < KV_PAGE; t++) {
            float y = half_float(values ? x[t * head_dim + d] : x[d * KV_PAGE + t]);
            sum[t] += absf(y);
            signs[t / 8] |= (uint8_t)((y < 0.0f) << t % 8);
        }
    }
    for (int t = 0; t < KV_PAGE; t++)
        scale[t] = float_half(sum[t] / (float)head_dim);
}

void unpack_binary(const void *block, int64_t head_dim, int values, void *i8)
{
    const uint8_t *signs = block;
    int8_t *codes = i8, byte[8];
    for (int64_t d = 0; d < head_dim; d++)
        for (int t = 0; t < KV_PAGE; t += 8) {
            uint64_t eight = spread(signs[4 * d + t / 8]) * 0xfe + 0x0101010101010101ull;
            memcpy(byte, &eight, 8);
            for (int i = 0; i < 8; i++)
                codes[values ? ((t + i) / 4 * head_dim + d) * 4 + i % 4 : (d / 4 * KV_PAGE + t + i) * 4 + d % 4] =
                    byte[i];
        }
    memcpy(codes + head_dim * KV_PAGE, (const uint8_t *)block + head_dim * KV_PAGE / 8, 2 * KV_PAGE);
}

/* ---- FP8 --------------------------------------------------------------------------------------------------------- */

uint8_t float_e4m3(float x)
{
    uint32_t u = float_bits(x), a = u & 0x7fffffffu, code;
    if (a > 0x7f800000u)
        code = 0x7f; /* NaN */
    else if (a < 0x3c800000u) /* below 2^-6: multiples of 2^-9 */
        code = (uint32_t)round_small(absf(x) * 512.0f);
    else {
        code = ((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120u << 3); /* half to even; bias 127 -> 7 */
        code = code > 0x7e ? 0x7e : code;
    }
    return (uint8_t)((u >> 24 & 0x80u) | code);
}

void seal_fp8(const uint16_t *x, int64_t head_dim, int values, void *block)
{
    uint8_t *codes = block;
    uint16_t *scale = (uint16_t *)(codes + head_dim * KV_PAGE);
    for (int t = 0; t < KV_PAGE; t++) {
        float max = 0.0f;
        for (int64_t d = 0; d < head_dim; d++) {
            float a = absf(half_float(values ? x[t * head_dim + d] : x[d * KV_PAGE + t]));
            max = a > max ? a : max;
        }
        scale[t] = float_half(max / 448.0f);
        float by = half_float(scale[t]);
        for (int64_t d = 0; d < head_dim; d++) {
            int64_t at = values ? t * head_dim + d : d * KV_PAGE + t;
            codes[at] = float_e4m3(by > 0.0f ? half_float(x[at]) / by : 0.0f);
        }
    }
}

void unpack_fp8(const void *block, int64_t head_dim, uint16_t *f16)
{
    const uint8_t *codes = block;
    for (int64_t i = 0; i < head_dim * KV_PAGE; i++) /* bias 7 read as 15, also of subnormals; NaN is never stored */
        f16[i] = (uint16_t)((codes[i] & 0x80) << 8 | (codes[i] & 0x7f) << 7);
}

void scale_fp8(const uint16_t *scale, int64_t n_q, float *s)
{
    for (int64_t i = 0; i < n_q; i++)
        for (int t = 0; t < KV_PAGE; t++)
            s[i * KV_PAGE + t] *= half_float(scale[t]) * 256.0f;
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

void hadamard(float *x, int64_t n)
{
    int64_t block = n & -n;
    if (block < 16)
        return;
    float factor = 1.0f;
    for (int64_t b = block; b >= 4; b /= 4)
        factor *= 0.5f;
    if (!(block & 0x55555555)) /* an odd power of two */
        factor *= 0.70710678118654752f;
    for (int64_t at = 0; at < n; at += block)
        for (int64_t half = 1; half < block; half *= 2)
            for (int64_t i = at; i < at + block; i += 2 * half)
                for (int64_t j = i; j < i + half; j++) {
                    float a = x[j], b = x[j + half];
                    x[j] = a + b;
                    x[j + half] = a - b;
                }
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}
