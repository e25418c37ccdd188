/* split_bits.c: a row of int8 codes -> its bit planes.  Baseline flags; this runs once, at load. */
#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Upper bound of the norm of what the lowest `bits` bits of u differ from their middle, as float.
 * 4 times the square is an integer, exact for k <= 2^20; the factor covers the roundings of sqrt and float. */
static float low_norm(const uint8_t *u, int64_t k, int bits)
{
    int32_t sum = 0;
    int16_t middle = (int16_t)((1 << bits) - 1);
    for (int64_t i = 0; i < k; i++) {
        int16_t twice = (int16_t)(2 * (u[i] & middle) - middle);
        sum += twice * twice;
    }
    return (float)(sqrt((double)sum) * 0.5 * (1 + 1e-6));
}

/* Eight bytes, of which `bit` of each goes to bit 0. */
static uint64_t single_bits(const uint8_t *u, int bit)
{
    uint64_t v;
    memcpy(&v, u, 8);
    return v >> bit & 0x0101010101010101u;
}

static void pack_bits(uint8_t *u, int64_t k, int64_t k_pad, int n_low, uint8_t *nibbles, uint8_t *bits,
                      int64_t stride)
{
    memset(u + k, 0, (size_t)(k_pad - k));
    for (int64_t b = 0; b < k_pad / 128; b++)
        for (int p = 0; p < 64; p++)
            nibbles[64 * b + p] = (uint8_t)(u[128 * b + p] >> 4 | (u[128 * b + 64 + p] & 0xf0));
    for (int low = 0; low < n_low; low++)
        for (int64_t b = 0; b < k_pad / BIT_BLOCK; b++)
            for (int p = 0; p < 64; p += 8) {
                uint64_t eight = 0;
                for (int j = 0; j < 8; j++)
                    eight |= single_bits(u + BIT_BLOCK * b + 64 * j + p, 3 - low) << j;
                memcpy(bits + low * stride + 64 * b + p, &eight, 8);
            }
}

void split_bits(uint8_t *u, int64_t k, int64_t k_pad, uint8_t *nibbles, uint8_t *bits, int64_t stride, float norm[3])
{
    for (int64_t i = 0; i < k; i++)
        u[i] ^= 0x80;
    pack_bits(u, k, k_pad, 4, nibbles, bits, stride);
    for (int low = 4; low > 1; low--)
        norm[4 - low] = low_norm(u, k, low);
}

static int has_nan(const float *w, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++)
        found |= w[i] != w[i];
    return found;
}

/* w / scale in 64ths, so that a row takes a third of the time that floats would take; they are off by half of one and
 * what w * inverse + 128 is rounded by, together less than 0.008 a number.  A square is at most (8.5 * 64)^2, and a sum
 * of MOST_K of them below 2^33. */
void split_bits_near(const float *w, float scale, uint8_t *u, int64_t k, int64_t k_pad, uint8_t *nibbles, uint8_t *bits,
                     int64_t stride, float norm[3])
{
    const float inverse = 64 / scale;
    const int finite = scale > 0 && scale <= FLT_MAX && !has_nan(w, k); /* the scale does not show a NaN */
    int64_t total[3] = {0};
    for (int64_t i = 0; i < k; i++)
        u[i] ^= 0x80;
    for (int64_t first = 0; finite && first < k; first += 16 * 32) {
        int32_t sum[3] = {0};
        int16_t part[16 * 32];
        const int64_t n = k - first < 16 * 32 ? k - first : 16 * 32;
        for (int64_t i = 0; i < n; i++)
            part[i] = (int16_t)(int32_t)(w[first + i] * inverse + 8192.5f);
        for (int64_t i = 0; i < n; i++) {
            int16_t code = u[first + i], four = (int16_t)(part[i] - (code & 0xf0) * 64 - 480),
                    five = (int16_t)(part[i] - (code & 0xf8) * 64 - 224),
                    six = (int16_t)(part[i] - (code & 0xfc) * 64 - 96);
            sum[0] += four * four, sum[1] += five * five, sum[2] += six * six;
        }
        for (int stage = 0; stage < 3; stage++)
            total[stage] += sum[stage];
    }
    for (int stage = 0; stage < 3; stage++) {
        norm[stage] = (float)((sqrt((double)total[stage]) / 64 + 0.008 * sqrt((double)k)) * (1 + 1e-6));
        if (!finite)
            norm[stage] = scale == 0 ? 0 : INFINITY;
    }
    pack_bits(u, k, k_pad, 2, nibbles, bits, stride);
}
