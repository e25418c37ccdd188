/* fit_planes.c: a group of weights as a sum of ternary planes (PTQTP, arXiv 2509.16989).
 *
 * P scales give 3^P levels, symmetric around 0.  Alternately each weight takes the nearest level and the scales the
 * least squares, from several starts; each half step lowers the error.  Since a level is the nearest of a run of
 * weights that are sorted by magnitude, sums over such runs, as differences of prefix sums, are all that a round needs:
 * its time does not depend on the size of the group.  Plain C with a fixed order, so the same bits everywhere. */
#include "kernels.h"
#include "numbers.h"
#include "template.h"

#include <math.h>

enum { MOST_LEVELS = 41, ROUNDS = 24 }; /* levels >= 0 of four planes */

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

typedef struct {
    double value, code[MOST_PLANES];
} level;

/* All levels >= 0 of n_plane scales, in some order; returns their number. */
static int first_levels(int n_plane, level *out)
{
    int n = 1;
    out[0] = (level){0.0, {0}};
    for (int first = n_plane - 1; first >= 0; first--) { /* the first plane that is not 0 has code 1 */
        int n_codes = 1;
        for (int p = first + 1; p < n_plane; p++)
            n_codes *= 3;
        for (int codes = 0; codes < n_codes; codes++) {
            level *l = &out[n++];
            *l = (level){0.0, {0}};
            l->code[first] = 1;
            for (int p = first + 1, rest = codes; p < n_plane; p++, rest /= 3)
                l->code[p] = rest % 3 - 1;
        }
    }
    return n;
}

/* Values of the levels for scales a, ascending; fast if the order hardly changes. */
INLINE void set_levels(const double *a, int n_plane, int n, level *of)
{
    for (int i = 0; i < n; i++) {
        level l = of[i];
        l.value = 0;
        for (int p = 0; p < n_plane; p++)
            l.value += a[p] * l.code[p];
        if (l.value < 0) {
            l.value = -l.value;
            for (int p = 0; p < n_plane; p++)
                l.code[p] = -l.code[p];
        }
        int at = i;
        for (; at > 0 && of[at - 1].value > l.value; at--)
            of[at] = of[at - 1];
        of[at] = l;
    }
}

/* a = the solution of m a = b, m [P][P] positive semidefinite, of which the lower half is given and overwritten;
 * directions without weights keep their scale. */
INLINE void solve(double m[MOST_PLANES][MOST_PLANES], const double *b, int n, double *a)
{
    double l[MOST_PLANES][MOST_PLANES], d[MOST_PLANES], y[MOST_PLANES], ridge = 0;
    for (int i = 0; i < n; i++)
        ridge += m[i][i];
    ridge *= 1e-9;
    for (int i = 0; i < n; i++) { /* m + ridge = l d l', d as reciprocals */
        y[i] = b[i] + ridge * a[i];
        double pivot = m[i][i] + ridge;
        for (int j = 0; j < i; j++) {
            double sum = m[i][j];
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * m[j][k]; /* m[j][k] has become l[j][k] d[k] */
            m[i][j] = sum;
            l[i][j] = sum * d[j];
            pivot -= sum * l[i][j];
            y[i] -= l[i][j] * y[j];
        }
        d[i] = pivot > 0 ? 1.0 / pivot : 0.0;
    }
    for (int i = n - 1; i >= 0; i--) {
        a[i] = y[i] * d[i];
        for (int k = i + 1; k < n; k++)
            a[i] -= l[k][i] * a[k];
    }
}

/* Magnitudes, ascending, with sums over all before each. */
typedef struct {
    int n;
    double x[GROUP + 1], sum[GROUP + 1], squares;
} magnitudes;

/* Rounds from scales a until no weight changes its level; returns the error. */
INLINE double refine_with(const magnitudes *m, int n_plane, int n_level, level *of, double *a)
{
    double error = m->squares;
    int last[MOST_LEVELS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        double normal[MOST_PLANES][MOST_PLANES] = {{0}}, right[MOST_PLANES] = {0};
        int from = 0, same = round > 0;
        set_levels(a, n_plane, n_level, of);
        for (int l = 0; l < n_level; l++) {
            int to = from;
            double bound = l + 1 < n_level ? 0.5 * (of[l].value + of[l + 1].value) : INFINITY;
            while (m->x[to] < bound) /* infinity ends them */
                to++;
            same &= last[l] == to;
            last[l] = to;
            if (to == from)
                continue;
            double n = to - from, sum = m->sum[to] - m->sum[from];
            for (int p = 0; p < n_plane; p++) {
                double code = of[l].code[p];
                right[p] += sum * code;
                for (int q = 0; q <= p; q++)
                    normal[p][q] += n * code * of[l].code[q];
            }
            from = to;
        }
        if (same)
            break;
        solve(normal, right, n_plane, a);
        error = m->squares;
        for (int p = 0; p < n_plane; p++)
            error -= a[p] * right[p];
    }
    return error;
}

/* The same with loops over planes unrolled. */
static double refine(const magnitudes *m, int n_plane, int n_level, level *of, double *a)
{
    switch (n_plane) {
    case 1:
        return refine_with(m, 1, n_level, of, a);
    case 2:
        return refine_with(m, 2, n_level, of, a);
    case 3:
        return refine_with(m, 3, n_level, of, a);
    default:
        return refine_with(m, 4, n_level, of, a);
    }
}

/* Levels are symmetric: the largest scale first, none negative. */
static void in_order(double *a, int n_plane)
{
    for (int p = 0; p < n_plane; p++) {
        double x = fabs(a[p]);
        int q = p;
        for (; q > 0 && a[q - 1] < x; q--)
            a[q] = a[q - 1];
        a[q] = x;
    }
}

/* Codes of w [n] that are nearest for given scales. */
static void nearest_planes(const float *w, int n, int n_plane, const float *scale, int8_t *code, int64_t stride)
{
    double a[MOST_PLANES] = {0}, bound[MOST_LEVELS];
    level of[MOST_LEVELS];
    for (int p = 0; p < n_plane; p++)
        a[p] = scale[p];
    int n_level = first_levels(n_plane, of);
    set_levels(a, n_plane, n_level, of);
    for (int l = 0; l + 1 < n_level; l++)
        bound[l] = 0.5 * (of[l].value + of[l + 1].value);
    for (int i = 0; i < n; i++) {
        double x = fabs((double)w[i]);
        int l = 0;
        while (l + 1 < n_level && x > bound[l])
            l++;
        for (int p = 0; p < n_plane; p++)
            code[p * stride + i] = (int8_t)(w[i] < 0 ? -of[l].code[p] : of[l].code[p]);
    }
}

double fit_planes(const float *w, int n, int n_plane, float *scale, int8_t *code, int64_t stride)
{
    magnitudes m = {.n = n};
    for (int i = 0; i < n; i++) { /* sorted by insertion */
        double x = fabs((double)w[i]);
        if (!(x < INFINITY))
            return -1;
        int at = i;
        for (; at > 0 && m.x[at - 1] > x; at--)
            m.x[at] = m.x[at - 1];
        m.x[at] = x;
    }
    for (int i = 0; i < n; i++) {
        m.sum[i + 1] = m.sum[i] + m.x[i];
        m.squares += m.x[i] * m.x[i];
    }
    level of[MOST_LEVELS];
    int n_level = first_levels(n_plane, of);
    m.x[n] = INFINITY;
    double best = INFINITY, found[MOST_PLANES] = {0};
    for (int t = 0; t < N_TOP; t++)
        for (int r = 0; r < N_RATIO[n_plane]; r++) {
            double a[MOST_PLANES] = {0}, sum = 0;
            for (int p = 0; p < n_plane; p++)
                sum += RATIO[n_plane][r][p];
            for (int p = 0; p < n_plane; p++)
                a[p] = RATIO[n_plane][r][p] / sum * TOP[t] * m.x[n - 1];
            double error = refine(&m, n_plane, n_level, of, a);
            if (error < best) {
                best = error;
                memcpy(found, a, sizeof found);
            }
        }
    in_order(found, n_plane);
    for (int p = 0; p < n_plane; p++) {
        scale[p] = half_float(float_half((float)found[p]));
        if (!(scale[p] < INFINITY))
            return -1;
    }
    nearest_planes(w, n, n_plane, scale, code, stride);
    double error = 0;
    for (int i = 0; i < n; i++) {
        double e = w[i];
        for (int p = 0; p < n_plane; p++)
            e -= (double)scale[p] * code[p * stride + i];
        error += e * e;
    }
    return error;
}
