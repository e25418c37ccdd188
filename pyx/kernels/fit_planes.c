/* fit_planes.c: the groups of a row of weights, each as a sum of ternary planes (PTQTP, arXiv 2509.16989).
 *
 * P scales give 3^P levels, symmetric around 0.  Alternately each weight takes the nearest level and the scales the
 * least squares, from several starts; each half step lowers the error.  Since a level is the nearest of a run of
 * weights that are sorted by magnitude, sums over such runs, as differences of prefix sums, are all that a round needs.
 *
 * A round is a chain of dependent steps, so some groups go through theirs side by side, and nothing in a round branches
 * on what cannot be predicted (benchmarks/log#fit-planes).  Plain C with a fixed order, so the same bits everywhere. */
#include "kernels.h"
#include "numbers.h"
#include "template.h"

#include <math.h>

enum { MOST_LEVELS = 41, SPAN = 44, ROUNDS = 24, LANES = 8 }; /* levels >= 0 of four planes; so many, in fours */

typedef double two __attribute__((vector_size(16)));
typedef int64_t two_masks __attribute__((vector_size(16)));
typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

/* Scales to begin with, as shares of the largest magnitude: these ratios, times these sums. */
static const float RATIO[MOST_PLANES + 1][4][MOST_PLANES] = {
    [1] = {{1}},
    [2] = {{3, 1}, {2, 1}, {5, 2}},
    [3] = {{9, 3, 1}, {4, 2, 1}, {6, 3, 1}, {7, 4, 2}},
    [4] = {{27, 9, 3, 1}, {8, 4, 2, 1}, {16, 7, 3, 1}},
};
static const int N_RATIO[MOST_PLANES + 1] = {0, 1, 3, 4, 3};
static const float TOP[] = {1.0f, 0.85f, 0.7f, 0.55f};
enum { N_TOP = sizeof TOP / sizeof TOP[0] };

/* All levels >= 0, ascending.  pairs: 1 + the product of the codes of planes p and q <= p, 10 bits each, six a word, so
 * that one sum counts the weights of all pairs. */
typedef struct {
    double code[MOST_PLANES][SPAN], value[SPAN + 1];
    uint64_t pairs[2][SPAN];
} levels;

/* Levels in some order.  Returns their number. */
static int first_levels(int n_plane, levels *of)
{
    int n = 1;
    memset(of, 0, sizeof *of);
    for (int first = n_plane - 1; first >= 0; first--) { /* the first plane that is not 0 has code 1 */
        int n_codes = 1;
        for (int p = first + 1; p < n_plane; p++)
            n_codes *= 3;
        for (int codes = 0; codes < n_codes; codes++, n++) {
            of->code[first][n] = 1;
            for (int p = first + 1, rest = codes; p < n_plane; p++, rest /= 3)
                of->code[p][n] = rest % 3 - 1;
            for (int p = 0, i = 0; p < n_plane; p++)
                for (int q = 0; q <= p; q++, i++)
                    of->pairs[i / 6][n] += (uint64_t)(1 + of->code[p][n] * of->code[q][n]) << i % 6 * 10;
        }
    }
    return n;
}

/* Of two neighbours of 8 bytes the second is x. */
INLINE void swap(void *x)
{
    uint64_t two[2];
    memcpy(two, (char *)x - 8, 16);
    memcpy((char *)x - 8, &two[1], 8);
    memcpy(x, &two[0], 8);
}

/* Values of the levels for scales a [p * stride], ascending; fast if the order does not change. */
INLINE void set_levels(levels *of, const double *a, int stride, int n_plane, int n)
{
    two_masks negative = {0}, falling = {0};
    for (int l = 0; l < n; l += 2) {
        two value = {0}, code;
        for (int p = 0; p < n_plane; p++) {
            memcpy(&code, &of->code[p][l], sizeof code);
            value += a[p * stride] * code;
        }
        negative |= value < 0;
        memcpy(&of->value[l], &value, sizeof value);
    }
    for (int l = n; l <= (n + 3) / 4 * 4; l++)
        of->value[l] = INFINITY;
    if (negative[0] | negative[1])
        for (int l = 0; l < n; l++)
            if (of->value[l] < 0) {
                of->value[l] = -of->value[l];
                for (int p = 0; p < n_plane; p++)
                    of->code[p][l] = -of->code[p][l];
            }
    for (int l = 0; l < n; l += 2) {
        two low, high;
        memcpy(&low, &of->value[l], sizeof low);
        memcpy(&high, &of->value[l + 1], sizeof high);
        falling |= low > high;
    }
    if (falling[0] | falling[1])
        for (int i = 1; i < n; i++)
            for (int l = i; l > 0 && of->value[l - 1] > of->value[l]; l--) {
                swap(&of->value[l]);
                for (int p = 0; p < n_plane; p++)
                    swap(&of->code[p][l]);
                for (int word = 0; word < (n_plane < 4 ? 1 : 2); word++)
                    swap(&of->pairs[word][l]);
            }
}

/* A group whose scales are searched, at one of its starts. */
typedef struct {
    levels of;
    double sum[GROUP + 1], squares; /* over all magnitudes before each */
    float x[GROUP + 4];             /* magnitudes, ascending, and infinity */
    four fourth[GROUP / 4];         /* every fourth of them, four times */
    four_ints to[SPAN / 4];         /* of each level, the end of its run of weights */
    int64_t group;
    int start, round;
    double best, found[MOST_PLANES]; /* the least error so far, and its scales */
} search;

/* Least squares of all lanes: normal a = right. */
typedef struct {
    two a[MOST_PLANES][LANES / 2], right[MOST_PLANES][LANES / 2], normal[MOST_PLANES][MOST_PLANES][LANES / 2];
} systems;

/* The scale or sum of one lane. */
INLINE double *lane_of(two *x, int lane) { return (double *)x + lane; }

/* One pair of lanes: a = the solution, where the matrix [P][P] is positive semidefinite and given by its lower half;
 * directions without weights keep their scale. */
INLINE void solve(systems *of, int pair, int n)
{
    two m[MOST_PLANES][MOST_PLANES], l[MOST_PLANES][MOST_PLANES], d[MOST_PLANES], y[MOST_PLANES], a[MOST_PLANES];
    two ridge = {0};
    for (int i = 0; i < n; i++)
        ridge += of->normal[i][i][pair];
    ridge *= 1e-9;
    for (int i = 0; i < n; i++) { /* normal + ridge = l d l', d as reciprocals */
        y[i] = of->right[i][pair] + ridge * of->a[i][pair];
        two pivot = of->normal[i][i][pair] + ridge;
        for (int j = 0; j < i; j++) {
            two sum = of->normal[i][j][pair];
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * m[j][k];
            m[i][j] = sum;
            l[i][j] = sum * d[j];
            pivot -= sum * l[i][j];
            y[i] -= l[i][j] * y[j];
        }
        two_masks some = pivot > 0, infinite = (two_masks)(two){INFINITY, INFINITY};
        d[i] = 1.0 / (two)((some & (two_masks)pivot) | (~some & infinite));
    }
    for (int i = n - 1; i >= 0; i--) {
        a[i] = y[i] * d[i];
        for (int k = i + 1; k < n; k++)
            a[i] -= l[k][i] * a[k];
        of->a[i][pair] = a[i];
    }
}

/* Half a round: each weight takes the nearest level for scales a, and the least squares are set up.  Returns 0 if that
 * changes nothing. */
INLINE int assign(search *s, systems *of, int lane, int n, int n_plane, int n_level)
{
    enum { MOST_FOURS = SPAN / 4 };
    const int n_four = (n_level + 3) / 4;
    set_levels(&s->of, lane_of(of->a[0], lane), LANES, n_plane, n_level);
    float bound[SPAN];
    for (int l = 0; l < 4 * n_four; l += 2) { /* between levels, rounded up to a float as x are */
        two low, high;
        memcpy(&low, &s->of.value[l], sizeof low);
        memcpy(&high, &s->of.value[l + 1], sizeof high);
        two up = (two)(((two_masks)(0.5 * (low + high)) + 0x1fffffff) & ~(int64_t)0x1fffffff);
        bound[l] = (float)up[0];
        bound[l + 1] = (float)up[1];
    }
    four_ints fours[MOST_FOURS] = {{0}}, changed = {0};
    for (int i = 0; 4 * i < n; i++)
        for (int v = 0; v < n_four; v++) {
            four b;
            memcpy(&b, &bound[4 * v], sizeof b);
            fours[v] -= s->fourth[i] < b;
        }
    for (int v = 0; v < n_four; v++) { /* and of the next four magnitudes those that are less */
        four_ints less[4];
        int32_t at[4];
        fours[v] *= 4;
        memcpy(at, &fours[v], sizeof at);
        for (int i = 0; i < 4; i++) {
            four x, b = {bound[4 * v + i], bound[4 * v + i], bound[4 * v + i], bound[4 * v + i]};
            memcpy(&x, &s->x[at[i]], sizeof x);
            less[i] = x < b;
        }
        four_ints a = PICK(four_ints, less[0], less[1], 0, 4, 1, 5) + PICK(four_ints, less[0], less[1], 2, 6, 3, 7);
        four_ints b = PICK(four_ints, less[2], less[3], 0, 4, 1, 5) + PICK(four_ints, less[2], less[3], 2, 6, 3, 7);
        four_ints to = fours[v] - PICK(four_ints, a, b, 0, 1, 4, 5) - PICK(four_ints, a, b, 2, 3, 6, 7);
        changed |= to ^ s->to[v];
        s->to[v] = to;
    }
    if (s->round && !(changed[0] | changed[1] | changed[2] | changed[3]))
        return 0;
    int32_t to[SPAN];
    memcpy(to, s->to, sizeof *s->to * n_four);
    double right[MOST_PLANES] = {0};
    uint64_t pairs[2] = {0};
    for (int l = 1; l < n_level; l++) {
        double sum = s->sum[to[l]] - s->sum[to[l - 1]];
        uint64_t count = (uint64_t)(to[l] - to[l - 1]);
        for (int p = 0; p < n_plane; p++)
            right[p] += sum * s->of.code[p][l];
        for (int word = 0; word < (n_plane < 4 ? 1 : 2); word++)
            pairs[word] += count * s->of.pairs[word][l];
    }
    for (int p = 0, i = 0; p < n_plane; p++) {
        *lane_of(of->right[p], lane) = right[p];
        for (int q = 0; q <= p; q++, i++)
            *lane_of(of->normal[p][q], lane) = (int)(pairs[i / 6] >> i % 6 * 10 & 1023) - (n - to[0]);
    }
    return 1;
}

/* A start: scales to begin with. */
static void start(search *s, systems *of, int lane, int number, int n, int n_plane)
{
    const float *ratio = RATIO[n_plane][number % N_RATIO[n_plane]];
    double sum = 0;
    for (int p = 0; p < n_plane; p++)
        sum += ratio[p];
    for (int p = 0; p < n_plane; p++)
        *lane_of(of->a[p], lane) = ratio[p] / sum * TOP[number / N_RATIO[n_plane]] * (double)s->x[n - 1];
    s->start = number;
    s->round = 0;
}

/* The first start of a group with weights w [n].  Returns 0 if one is not finite. */
static int begin(search *s, systems *of, int lane, int64_t group, const float *w, int n, int n_plane)
{
    for (int i = 0; i < GROUP + 4; i++)
        s->x[i] = INFINITY;
    for (int i = 0; i < n; i++) { /* sorted by insertion */
        float x = absf(w[i]);
        if (!(x < INFINITY))
            return 0;
        int at = i;
        for (; at > 0 && s->x[at - 1] > x; at--)
            s->x[at] = s->x[at - 1];
        s->x[at] = x;
    }
    for (int i = 0; 4 * i < n; i++)
        for (int j = 0; j < 4; j++)
            s->fourth[i][j] = s->x[4 * i + 3];
    s->sum[0] = s->squares = 0;
    for (int i = 0; i < n; i++) {
        s->sum[i + 1] = s->sum[i] + s->x[i];
        s->squares += (double)s->x[i] * s->x[i];
    }
    first_levels(n_plane, &s->of);
    s->group = group;
    s->best = INFINITY;
    start(s, of, lane, 0, n, n_plane);
    return 1;
}

/* Levels are symmetric: the largest scale first, none negative; each as half precision.  Returns 0 if one is beyond. */
static int in_order(const double *found, int n_plane, float *scale, int64_t stride)
{
    double a[MOST_PLANES];
    for (int p = 0; p < n_plane; p++) {
        double x = fabs(found[p]);
        int q = p;
        for (; q > 0 && a[q - 1] < x; q--)
            a[q] = a[q - 1];
        a[q] = x;
    }
    for (int p = 0; p < n_plane; p++)
        scale[p * stride] = half_float(float_half((float)a[p]));
    return scale[0] < INFINITY;
}

/* Scales [p * stride] of all groups of a row w [k].  Returns 0 if there are none. */
INLINE int find_scales(const float *w, int64_t k, int n, int n_plane, int n_level, float *scale, int64_t stride)
{
    search lanes[LANES], *s[LANES];
    systems of;
    const int64_t n_group = k / n;
    int64_t next = 0;
    int n_lane = 0;
    memset(&of, 0, sizeof of);
    for (; n_lane < LANES && next < n_group; n_lane++, next++) {
        s[n_lane] = &lanes[n_lane];
        if (!begin(s[n_lane], &of, n_lane, next, w + next * n, n, n_plane))
            return 0;
    }
    while (n_lane) {
        for (int i = 0; i < n_lane; i++) {
            while (s[i]->round == ROUNDS || !assign(s[i], &of, i, n, n_plane, n_level)) { /* this start has ended */
                double error = s[i]->squares;
                for (int p = 0; p < n_plane; p++)
                    error -= *lane_of(of.a[p], i) * *lane_of(of.right[p], i);
                if (error < s[i]->best) {
                    s[i]->best = error;
                    for (int p = 0; p < n_plane; p++)
                        s[i]->found[p] = *lane_of(of.a[p], i);
                }
                if (s[i]->start + 1 < N_TOP * N_RATIO[n_plane]) {
                    start(s[i], &of, i, s[i]->start + 1, n, n_plane);
                } else if (!in_order(s[i]->found, n_plane, scale + s[i]->group, stride)) {
                    return 0;
                } else if (next < n_group) {
                    if (!begin(s[i], &of, i, next, w + next * n, n, n_plane))
                        return 0;
                    next++;
                } else if (i == --n_lane) {
                    break;
                } else { /* the last lane moves here */
                    s[i] = s[n_lane];
                    for (int p = 0; p < n_plane; p++) {
                        *lane_of(of.a[p], i) = *lane_of(of.a[p], n_lane);
                        *lane_of(of.right[p], i) = *lane_of(of.right[p], n_lane);
                    }
                }
            }
            s[i]->round++;
        }
        for (int pair = 0; 2 * pair < n_lane; pair++)
            solve(&of, pair, n_plane);
    }
    return 1;
}

/* Codes of w [n] that are nearest for given scales [p * scale_stride]; returns the sum of error^2. */
static double nearest_planes(const float *w, int n, int n_plane, const float *scale, int64_t scale_stride, int8_t *code,
                             int64_t stride)
{
    double a[MOST_PLANES], all = 0;
    levels of;
    int n_level = first_levels(n_plane, &of);
    for (int p = 0; p < n_plane; p++)
        a[p] = scale[p * scale_stride];
    set_levels(&of, a, 1, n_plane, n_level);
    for (int i = 0; i < n; i++) {
        double x = absf(w[i]), error = w[i];
        int l = 0;
        while (l + 1 < n_level && x > 0.5 * (of.value[l] + of.value[l + 1]))
            l++;
        for (int p = 0; p < n_plane; p++) {
            code[p * stride + i] = (int8_t)(w[i] < 0 ? -of.code[p][l] : of.code[p][l]);
            error -= a[p] * code[p * stride + i];
        }
        all += error * error;
    }
    return all;
}

double fit_planes(const float *w, int64_t k, int n, int n_plane, float *scale, int64_t scale_stride, int8_t *code,
                  int64_t stride)
{
    int found;
    switch (n_plane) { /* the same with loops over planes and levels unrolled */
    case 1:
        found = find_scales(w, k, n, 1, 2, scale, scale_stride);
        break;
    case 2:
        found = find_scales(w, k, n, 2, 5, scale, scale_stride);
        break;
    case 3:
        found = find_scales(w, k, n, 3, 14, scale, scale_stride);
        break;
    default:
        found = find_scales(w, k, n, 4, 41, scale, scale_stride);
    }
    if (!found)
        return -1;
    double error = 0;
    for (int64_t g = 0; g < k / n; g++)
        error += nearest_planes(w + g * n, n, n_plane, scale + g, scale_stride, code + g * n, stride);
    return error;
}
