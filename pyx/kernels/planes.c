/* planes.c: a row of int8 codes -> its bit planes.  Baseline flags; this runs once, at load. */
#include "kernels.h"

#include <math.h>

/* Upper bound of the norm of what the lowest `bits` bits of u differ from their middle, as float.
 * 4 times the square is an integer, exact for k <= 2^20; the factor covers the roundings of sqrt and float. */
static float low_norm(const uint8_t *u, int64_t k, int bits)
{
    int64_t sum = 0;
    int middle = (1 << bits) - 1;
    for (int64_t i = 0; i < k; i++) {
        int twice = 2 * (u[i] & middle) - middle;
        sum += twice * twice;
    }
    return (float)(sqrt((double)sum) * 0.5 * (1 + 1e-6));
}

void split_planes(uint8_t *u, int64_t k, int64_t k_pad, uint8_t *nibbles, uint8_t *bits, int64_t stride, float norm[3])
{
    for (int64_t i = 0; i < k_pad; i++)
        u[i] = i < k ? u[i] ^ 0x80 : 0;
    for (int64_t b = 0; b < k_pad / 128; b++)
        for (int p = 0; p < 64; p++)
            nibbles[64 * b + p] = (uint8_t)(u[128 * b + p] >> 4 | (u[128 * b + 64 + p] & 0xf0));
    for (int plane = 0; plane < 4; plane++)
        for (int64_t b = 0; b < k_pad / PLANE_BLOCK; b++)
            for (int p = 0; p < 64; p++) {
                int byte = 0;
                for (int j = 0; j < 8; j++)
                    byte |= (u[PLANE_BLOCK * b + 64 * j + p] >> (3 - plane) & 1) << j;
                bits[plane * stride + 64 * b + p] = (uint8_t)byte;
            }
    for (int low = 4; low > 1; low--)
        norm[4 - low] = low_norm(u, k, low);
}
