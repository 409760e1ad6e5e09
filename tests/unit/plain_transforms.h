/* SPDX-License-Identifier: Apache-2.0 */
/* The transforms of transforms.def in plain C and double, by optax's formulas (0.1.2: transform.py, clipping.py,
 * wrappers.py): what test_transforms.c holds the recorded ones against. */
#ifndef PLAIN_TRANSFORMS_H
#define PLAIN_TRANSFORMS_H

#include <math.h>
#include <string.h>

#include "program/program.h"

enum { PARAMETERS = 5, MOST = 72, SLOTS = 3 };

static const struct sample {
    const char *name;
    int rank;
    int64_t dim[3];
    uint8_t axis[3];
} samples[PARAMETERS] = {
    {"bias", 1, {7, 1, 1}, {SYI_AXIS_EMBED}},
    {"dense/kernel", 2, {5, 4, 1}, {SYI_AXIS_EMBED, SYI_AXIS_MLP}},
    {"heads/kernel", 3, {3, 4, 6}, {SYI_AXIS_EMBED, SYI_AXIS_HEADS, SYI_AXIS_MLP}},
    {"expert/kernel", 3, {2, 3, 4}, {SYI_AXIS_EXPERT, SYI_AXIS_EMBED, SYI_AXIS_EXPERT_MLP}},
    {"wide/kernel", 2, {3, 5, 1}, {SYI_AXIS_MLP, SYI_AXIS_EMBED}},
};

static inline int64_t size_of(int i)
{
    return samples[i].dim[0] * samples[i].dim[1] * samples[i].dim[2];
}

/* ---- plainly: what a chain does to all parameters ---- */

typedef double values[PARAMETERS][MOST];

struct term {
    void (*apply)(const struct term *t, values *s); /* s: [SLOTS] its state, then that of what it holds */
    double a[6];                                    /* its arguments */
    const struct term *inner;
};

/* The state of a run. */
static struct {
    int64_t step;
    double rate;
    unsigned on; /* bit i: parameter i is looked at */
    values p, u, noise, state[6 * SLOTS];
} now;

#define EACH_PARAMETER(i)                                                                                    \
    for (int i = 0; i < PARAMETERS; i++)                                                                     \
        if (now.on >> i & 1)
#define EACH(i, k) EACH_PARAMETER(i) for (int64_t k = 0; k < size_of(i); k++)

static inline double moving(double *mean, double value, double decay)
{
    return *mean = decay * *mean + (1 - decay) * value;
}

static inline double corrected(double mean, double decay)
{
    return mean / (1 - pow(decay, (double)now.step + 1));
}

/* b1, b2, eps, eps_root */
static inline void adam(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k], mu = moving(&s[0][i][k], g, t->a[0]),
               nu = moving(&s[1][i][k], g * g, t->a[1]);
        now.u[i][k] = corrected(mu, t->a[0]) / (sqrt(corrected(nu, t->a[1]) + t->a[3]) + t->a[2]);
    }
}

static inline void belief(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k], error = g - s[0][i][k], mu = moving(&s[0][i][k], g, t->a[0]);
        double nu = s[1][i][k] = moving(&s[1][i][k], error * error, t->a[1]) + t->a[3];
        now.u[i][k] = corrected(mu, t->a[0]) / (sqrt(corrected(nu, t->a[1])) + t->a[2]);
    }
}

/* b1, b2, eps, eps_root, initial_accumulator_value */
static inline void yogi(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k];
        if (!now.step) s[0][i][k] = s[1][i][k] = t->a[4];
        double mu = moving(&s[0][i][k], g, t->a[0]), sign = (s[1][i][k] > g * g) - (s[1][i][k] < g * g);
        double nu = s[1][i][k] -= (1 - t->a[1]) * sign * g * g;
        now.u[i][k] = corrected(mu, t->a[0]) / (sqrt(corrected(nu, t->a[1]) + t->a[3]) + t->a[2]);
    }
}

/* b1, b2, eps, eps_root, threshold */
static inline void radam(const struct term *t, values *s)
{
    double n = (double)now.step + 1, power = pow(t->a[1], n), most = 2 / (1 - t->a[1]) - 1;
    double length = most - 2 * n * power / (1 - power);
    double r = sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    EACH(i, k)
    {
        double g = now.u[i][k], mu = moving(&s[0][i][k], g, t->a[0]),
               nu = moving(&s[1][i][k], g * g, t->a[1]);
        now.u[i][k] = corrected(mu, t->a[0]);
        if (length >= t->a[4]) now.u[i][k] *= r / (sqrt(corrected(nu, t->a[1]) + t->a[3]) + t->a[2]);
    }
}

/* decay, eps, initial_scale */
static inline void rms(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k];
        if (!now.step) s[0][i][k] = t->a[2];
        now.u[i][k] = g / sqrt(moving(&s[0][i][k], g * g, t->a[0]) + t->a[1]);
    }
}

static inline void stddev(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k];
        if (!now.step) s[1][i][k] = t->a[2];
        double mu = moving(&s[0][i][k], g, t->a[0]), nu = moving(&s[1][i][k], g * g, t->a[0]);
        now.u[i][k] = g / sqrt(nu - mu * mu + t->a[1]);
    }
}

/* initial_accumulator_value, eps */
static inline void rss(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k];
        if (!now.step) s[0][i][k] = t->a[0];
        s[0][i][k] += g * g;
        now.u[i][k] = s[0][i][k] > 0 ? g / sqrt(s[0][i][k] + t->a[1]) : 0;
    }
}

/* Index of element k along dim d. */
static inline int64_t along(int i, int d, int64_t k)
{
    for (int below = 2; below > d; below--) k /= samples[i].dim[below];
    return k % samples[i].dim[d];
}

/* b1, b2, eps; slot 0: the accumulators of all dims, one after the other */
static inline void sm3(const struct term *t, values *s)
{
    EACH_PARAMETER(i)
    {
        double most[3][8] = {{0}};
        for (int64_t k = 0; k < size_of(i); k++) {
            double g = now.u[i][k], least = INFINITY;
            for (int d = 0; d < samples[i].rank; d++) least = fmin(least, s[0][i][8 * d + along(i, d, k)]);
            double sum = (t->a[1] == 1 ? 1 : 1 - t->a[1]) * g * g + t->a[1] * least;
            for (int d = 0; d < samples[i].rank; d++) {
                double *m = &most[d][along(i, d, k)];
                *m = fmax(*m, sum);
            }
            now.u[i][k] = moving(&s[1][i][k], sum > 0 ? g / sqrt(sum + t->a[2]) : 0, t->a[0]);
        }
        for (int d = 0; d < 3; d++) memcpy(&s[0][i][8 * d], most[d], sizeof most[d]);
    }
}

/* b1, b2 */
static inline void lion(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k], signed_one = t->a[0] * s[0][i][k] + (1 - t->a[0]) * g;
        moving(&s[0][i][k], g, t->a[1]);
        now.u[i][k] = (signed_one > 0) - (signed_one < 0);
    }
}

/* decay, nesterov */
static inline void trace(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double g = now.u[i][k], sum = s[0][i][k] = g + t->a[0] * s[0][i][k];
        now.u[i][k] = t->a[1] != 0 ? g + t->a[0] * sum : sum;
    }
}

/* decay, debias */
static inline void ema(const struct term *t, values *s)
{
    EACH(i, k)
    {
        double mean = moving(&s[0][i][k], now.u[i][k], t->a[0]);
        now.u[i][k] = t->a[1] != 0 ? corrected(mean, t->a[0]) : mean;
    }
}

static inline void scale(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k) now.u[i][k] *= t->a[0];
}

static inline void learning_rate(const struct term *t, values *s)
{
    (void)t;
    (void)s;
    EACH(i, k) now.u[i][k] *= -now.rate;
}

/* From 1 to 0 over a[0] steps, times a[1]. */
static inline void schedule(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k) now.u[i][k] *= t->a[1] * (1 - fmin((double)now.step, t->a[0]) / t->a[0]);
}

/* weight_decay; a[1]: bits of the parameters */
static inline void decay_weights(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k)
    if ((unsigned)t->a[1] >> i & 1) now.u[i][k] += t->a[0] * now.p[i][k];
}

static inline double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += x[k] * x[k];
    return sqrt(sum);
}

/* min_norm, trust_coefficient, eps; a[3]: bits of the parameters */
static inline void trust_ratio(const struct term *t, values *s)
{
    (void)s;
    EACH_PARAMETER(i)
    {
        double p = fmax(norm_of(now.p[i], size_of(i)), t->a[0]);
        double u = fmax(norm_of(now.u[i], size_of(i)), t->a[0]);
        double ratio = p == 0 || u == 0 ? 1 : t->a[1] * p / (u + t->a[2]);
        for (int64_t k = 0; k < size_of(i); k++)
            if ((unsigned)t->a[3] >> i & 1) now.u[i][k] *= ratio;
    }
}

static inline void fromage(const struct term *t, values *s)
{
    double m = 1 / sqrt(1 + now.rate * now.rate);
    (void)t;
    (void)s;
    EACH(i, k) now.u[i][k] = -now.rate * m * now.u[i][k] + (m - 1) * now.p[i][k];
}

/* ---- bounds ---- */

static inline void clip(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k) now.u[i][k] = fmin(fmax(now.u[i][k], -t->a[0]), t->a[0]);
}

static inline void global_norm(const struct term *t, values *s)
{
    double sum = 0;
    (void)s;
    EACH(i, k) sum += now.u[i][k] * now.u[i][k];
    EACH(i, k)
    if (sqrt(sum) >= t->a[0]) now.u[i][k] *= t->a[0] / sqrt(sum);
}

static inline void block_rms(const struct term *t, values *s)
{
    (void)s;
    EACH_PARAMETER(i)
    {
        double size = norm_of(now.u[i], size_of(i)) / sqrt((double)size_of(i));
        for (int64_t k = 0; k < size_of(i); k++) now.u[i][k] /= fmax(1, size / t->a[0]);
    }
}

/* The unit of the output that an element belongs to, over which norms are taken: all of a vector; else dim 0, or of
 * experts, each of which is a matrix, dim 1. */
static inline int64_t unit_of(int i, int64_t k)
{
    const int64_t *d = samples[i].dim;
    if (samples[i].rank == 1) return 0;
    return samples[i].axis[0] == SYI_AXIS_EXPERT ? k / (d[1] * d[2]) * d[2] + k % d[2] : k % (d[1] * d[2]);
}

/* clipping, eps */
static inline void adaptive(const struct term *t, values *s)
{
    (void)s;
    EACH_PARAMETER(i)
    {
        double p[MOST] = {0}, u[MOST] = {0};
        for (int64_t k = 0; k < size_of(i); k++) {
            p[unit_of(i, k)] += now.p[i][k] * now.p[i][k];
            u[unit_of(i, k)] += now.u[i][k] * now.u[i][k];
        }
        for (int64_t k = 0; k < size_of(i); k++) {
            double most = t->a[0] * fmax(sqrt(p[unit_of(i, k)]), t->a[1]), norm = sqrt(u[unit_of(i, k)]);
            if (norm >= most) now.u[i][k] *= most / fmax(norm, 1e-6);
        }
    }
}

static inline void no_nans(const struct term *t, values *s)
{
    (void)t;
    (void)s;
    EACH(i, k)
    if (isnan(now.u[i][k])) now.u[i][k] = 0;
}

/* ---- noise ---- */

/* eta, gamma */
static inline void noise(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k) now.u[i][k] += now.noise[i][k] * sqrt(t->a[0] / pow((double)now.step + 1, t->a[1]));
}

/* l2_norm_clip, noise_multiplier, rows of a batch */
static inline void aggregate(const struct term *t, values *s)
{
    (void)s;
    EACH(i, k) now.u[i][k] = (now.u[i][k] + now.noise[i][k] * t->a[0] * t->a[1]) / t->a[2];
}

/* ---- Muon ---- */

/* x <- a x + (b g + c g g) x with g = x x^T, of a matrix [rows, columns] */
static inline void newton_schulz(double *x, int64_t rows, int64_t columns)
{
    double g[8][8] = {{0}}, poly[8][8], y[MOST] = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < rows; j++)
            for (int64_t k = 0; k < columns; k++) g[i][j] += x[i * columns + k] * x[j * columns + k];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < rows; j++) {
            double square = 0;
            for (int64_t k = 0; k < rows; k++) square += g[i][k] * g[k][j];
            poly[i][j] = -4.7750 * g[i][j] + 2.0315 * square;
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            for (int64_t j = 0; j < rows; j++) y[i * columns + k] += poly[i][j] * x[j * columns + k];
    for (int64_t k = 0; k < rows * columns; k++) x[k] = 3.4445 * x[k] + y[k];
}

/* beta, nesterov, steps, b1, b2, eps: matrices that are no table are made orthogonal, the others go as under Adam */
static inline void muon(const struct term *t, values *s)
{
    const struct term others = {.a = {t->a[3], t->a[4], t->a[5], 0}};
    unsigned all = now.on, matrices = 1u << 1 | 1u << 4;
    now.on = all & ~matrices;
    adam(&others, s);
    now.on = all & matrices;
    EACH_PARAMETER(i)
    {
        int64_t rows = samples[i].dim[0], columns = samples[i].dim[1];
        double *x = now.u[i], beta = t->a[0];
        for (int64_t k = 0; k < size_of(i); k++) {
            double moved = moving(&s[0][i][k], x[k], beta);
            x[k] = t->a[1] != 0 ? beta * moved + (1 - beta) * x[k] : moved;
        }
        double norm = norm_of(x, size_of(i));
        for (int64_t k = 0; k < size_of(i); k++) x[k] /= norm + 1e-7;
        for (int n = 0; n < (int)t->a[2]; n++) newton_schulz(x, rows, columns);
        for (int64_t k = 0; k < size_of(i); k++) x[k] *= 0.2 * sqrt(fmax((double)rows, (double)columns));
    }
    now.on = all;
}

/* ---- what holds others ---- */

static inline void nothing(const struct term *t, values *s)
{
    (void)t;
    (void)s;
}

static inline void inner(const struct term *t, values *s, int64_t step)
{
    int64_t here = now.step;
    now.step = step;
    t->inner->apply(t->inner, s + SLOTS);
    now.step = here;
}

/* a[0]: bits of the parameters */
static inline void masked(const struct term *t, values *s)
{
    unsigned all = now.on;
    now.on &= (unsigned)t->a[0];
    inner(t, s, now.step);
    now.on = all;
}

static inline void every(const struct term *t, values *s)
{
    int64_t k_steps = (int64_t)t->a[0], at = now.step % k_steps;
    EACH(i, k)
    {
        double sum = s[0][i][k] = now.u[i][k] + (at ? s[0][i][k] : 0);
        now.u[i][k] = at == k_steps - 1 ? sum : 0;
    }
}

/* The plain mean of the gradients, not optax's running one. */
static inline void multi(const struct term *t, values *s)
{
    int64_t k_steps = (int64_t)t->a[0], at = now.step % k_steps;
    EACH(i, k)
    {
        double sum = s[0][i][k] = now.u[i][k] + (at ? s[0][i][k] : 0);
        now.u[i][k] = at == k_steps - 1 ? sum / (double)k_steps : 0;
    }
    if (at == k_steps - 1) inner(t, s, now.step / k_steps);
}

static inline void maybe(const struct term *t, values *s)
{
    int64_t k_steps = (int64_t)t->a[0];
    if (now.step % k_steps == 0) inner(t, s, now.step / k_steps);
}

/* s[0][0][0]: steps in a row that were not finite */
static inline void if_finite(const struct term *t, values *s)
{
    int finite = 1;
    EACH(i, k) finite &= isfinite(now.u[i][k]) != 0;
    s[0][0][0] = finite ? 0 : s[0][0][0] + 1;
    if (finite || s[0][0][0] > t->a[0])
        inner(t, s, now.step);
    else
        EACH(i, k) now.u[i][k] = 0;
}

/* b1, weight_lr_power. Slots: iterate, average, largest rate and sum of weights. */
static inline void averaged(const struct term *t, values *s)
{
    double *largest = &s[2][0][0], *sum = &s[2][0][1];
    if (!now.step) memcpy(s[0], now.p, sizeof now.p), memcpy(s[1], now.p, sizeof now.p);
    *largest = fmax(*largest, now.rate);
    *sum += pow(*largest, t->a[1]);
    double share = pow(*largest, t->a[1]) / *sum;
    inner(t, s, now.step);
    EACH(i, k)
    {
        double z = s[0][i][k] += now.u[i][k], x = s[1][i][k] = (1 - share) * s[1][i][k] + share * z;
        now.u[i][k] = t->a[0] * x + (1 - t->a[0]) * z - now.p[i][k];
    }
}

#endif
