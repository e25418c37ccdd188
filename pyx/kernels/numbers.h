/* numbers.h: single numbers.  Half precision, rounding and exp, each written once so that every target
 * computes the same bits.  No libm, no branches, so that loops over these functions vectorise.
 *
 * Everything here is static inline on purpose: the header is compiled into objects with different instruction sets,
 * and a shared out-of-line copy could be the AVX2 one in a program that runs on a processor without AVX2. */
#ifndef BITNET_EDGE_NUMBERS_H
#define BITNET_EDGE_NUMBERS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* yes where the condition holds, else no.  As a bit select, because compilers turn `c ? a : b` into branches when they
 * honour floating-point exceptions, and a loop with branches is not vectorised. */
static inline float choose(int condition, float yes, float no)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return bits_float((float_bits(yes) & mask) | (float_bits(no) & ~mask));
}

static inline float absf(float x) { return bits_float(float_bits(x) & 0x7fffffffu); }

/* IEEE half -> float, exact; a signalling NaN becomes quiet (as F16C and the ARM fcvt do). */
static inline float half_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t em = h & 0x7fffu;                        /* exponent and mantissa */
    uint32_t normal = (em << 13) + (112u << 23);      /* bias 15 -> 127        */
    uint32_t special = (em << 13) | 0x7f800000u | (em > 0x7c00u ? 0x00400000u : 0u);
    uint32_t small = float_bits((float)(int32_t)em * 0x1p-24f);
    uint32_t u = em < 0x0400u ? small : normal;
    u = em >= 0x7c00u ? special : u;
    return bits_float(u | sign);
}

/* float -> IEEE half, round to nearest even; overflow gives infinity, NaN stays NaN (quiet, upper payload bits). */
static inline uint16_t float_half(float x)
{
    uint32_t u = float_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    uint32_t normal = ((a + 0x0fffu + ((a >> 13) & 1u)) >> 13) - (112u << 10);
    /* 0.5f has an ulp of 2^-24, the smallest half: the addition rounds to it, half to even */
    uint32_t small = float_bits(bits_float(a < 0x38800000u ? a : 0u) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | ((a >> 13) & 0x03ffu);
    uint32_t h = a < 0x38800000u ? small : normal;
    h = a >= 0x47800000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? nan : h;
    return (uint16_t)(h | sign);
}

/* Round half to even without a clamp: -2^22 <= x <= 2^22. */
static inline int32_t round_small(float x)
{
    return (int32_t)(float_bits(x + 12582912.0f) - 0x4b400000u); /* 1.5 * 2^23: the ulp is 1 */
}

/* Clamp to +-limit, then round half to even.  limit <= 2^22.  NaN gives +limit. */
static inline int32_t round_clamped(float x, float limit)
{
    x = choose(x < limit, x, limit);
    x = choose(x > -limit, x, -limit);
    return round_small(x);
}

/* Of tanh's GELU: 2 sqrt(2/pi), and that times 0.044715. */
#define GELU_1 1.5957691216057308f
#define GELU_3 0.07135481627260025f

/* exp(x): Cody-Waite reduction and the degree-7 polynomial of Cephes expf, without fused multiply-add.
 * Within 2 ulp of exp on [-87, 88]; exactly 1 at 0; 0 below -87 (and at -inf); infinity above 88; NaN stays NaN. */
static inline float kernel_expf(float x)
{
    float c = choose(x > 88.0f, 88.0f, x);
    c = choose(c < -87.0f, -87.0f, c);
    float magic = c * 1.44269504088896341f + 12582912.0f;
    float n = magic - 12582912.0f;
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    float y = p * bits_float((float_bits(magic) - 0x4b400000u + 127u) << 23);
    y = choose(x > 88.0f, bits_float(0x7f800000u), y);
    return choose(x < -87.0f, 0.0f, y);
}

#endif
