/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of fmath.h, written once over abstract operations and included once for each element type: a
 * float, a double, 16 floats of one instruction set (backends/cpu/simd.h). Therefore no include guard. The
 * includer defines
 *   FM(op)     name of an operation or function of its type
 *   FM_F       the type; FM_S the scalar it is made of; FM_I as many int32
 *   FM_LIBM    when exp, log and tanh exist already (double); FM_I and the integer operations are not needed
 *   FM_SCALES  when scale(p, n) exists already, see there
 *   SYI_INLINE (base/inline.h)
 * and these operations: set(s), add, sub, mul, div, sqrt, fma(a, b, c), min(a, b) = a < b ? a : b,
 * max(a, b) = a > b ? a : b, less(a, b) -> mask, select(mask, a, b), and without FM_LIBM bits(f) -> i,
 * real(i) -> f (the same bits), convert(i) -> f (the nearest value), iset, iadd, isub, iand, ior,
 * ishl(i, count), isra(i, count). min and max return their second argument when one is NaN: the order of
 * arguments below keeps NaN. */

#ifndef FM_LIBM

/* x = n ln 2 + r, |r| <= ln 2 / 2, n = round(x / ln 2); for |x| < 2^21. */
SYI_INLINE void FM(reduce)(FM_F x, FM_F *n, FM_F *r)
{
    const FM_F magic = FM(set)(0x1.8p23f); /* adding 1.5 * 2^23 rounds to an integer */
    *n = FM(sub)(FM(fma)(x, FM(set)(0x1.715476p0f), magic), magic);
    *r = FM(fma)(*n, FM(set)(-0x1.62e43p-1f), x);
    *r = FM(fma)(*n, FM(set)(0x1.05c61p-29f), *r);
}

/* (e^r - r - 1) / r^2 on |r| <= ln 2 / 2: degree 4, minimax (own fit, error 1.5e-8 * |r|^-1 at most). */
SYI_INLINE FM_F FM(exp_tail)(FM_F r)
{
    FM_F q = FM(set)(0x1.6d9622p-10f);
    q = FM(fma)(q, r, FM(set)(0x1.12261p-7f));
    q = FM(fma)(q, r, FM(set)(0x1.55548cp-5f));
    q = FM(fma)(q, r, FM(set)(0x1.5554b2p-3f));
    return FM(fma)(q, r, FM(set)(0.5f));
}

/* 2^n for whole n from -126 to 127: the sum has n + 127 in its low bits. */
SYI_INLINE FM_F FM(power)(FM_F n)
{
    return FM(real)(FM(ishl)(FM(bits)(FM(add)(n, FM(set)(0x1.8p23f + 127))), 23));
}

#    ifndef FM_SCALES
/* p * 2^n for p near 1 and whole n from -252 to 254: in two factors, so that denormal results are rounded
 * once and large ones become inf. */
SYI_INLINE FM_F FM(scale)(FM_F p, FM_F n)
{
    const FM_F magic = FM(set)(0x1.8p23f), half = FM(sub)(FM(fma)(n, FM(set)(0.5f), magic), magic);
    return FM(mul)(FM(mul)(p, FM(power)(half)), FM(power)(FM(sub)(n, half)));
}
#    endif

SYI_INLINE FM_F FM(exp)(FM_F x)
{
    FM_F n, r;
    x = FM(min)(FM(set)(89.0f), FM(max)(FM(set)(-105.0f), x));
    FM(reduce)(x, &n, &r);
    FM_F p = FM(exp_tail)(r);
    p = FM(fma)(p, r, FM(set)(1.0f));
    return FM(scale)(FM(fma)(p, r, FM(set)(1.0f)), n);
}

SYI_INLINE FM_F FM(log)(FM_F x)
{
    const FM_F zero = FM(set)(0.0f), infinity = FM(set)(__builtin_inff());
    /* x = 2^k m, m in [sqrt(1/2), sqrt(2)); denormals are scaled up first. */
    FM_F tiny_k = FM(select)(FM(less)(x, FM(set)(0x1p-126f)), FM(set)(23.0f), zero);
    FM_F scale = FM(select)(FM(less)(x, FM(set)(0x1p-126f)), FM(set)(0x1p23f), FM(set)(1.0f));
    FM_I b = FM(bits)(FM(mul)(x, scale));
    FM_I k = FM(isra)(FM(isub)(b, FM(iset)(0x3f3504f3)), 23);
    FM_F f = FM(sub)(FM(real)(FM(isub)(b, FM(ishl)(k, 23))), FM(set)(1.0f));
    FM_F kf = FM(sub)(FM(convert)(k), tiny_k);
    /* (log(1 + f) - f + f^2 / 2) / f^3: degree 7, minimax (own fit). */
    FM_F p = FM(set)(-0x1.42e05ep-4f);
    p = FM(fma)(p, f, FM(set)(0x1.07a62cp-3f));
    p = FM(fma)(p, f, FM(set)(-0x1.0c9d06p-3f));
    p = FM(fma)(p, f, FM(set)(0x1.22725ap-3f));
    p = FM(fma)(p, f, FM(set)(-0x1.54809cp-3f));
    p = FM(fma)(p, f, FM(set)(0x1.99a582p-3f));
    p = FM(fma)(p, f, FM(set)(-0x1.0001fep-2f));
    p = FM(fma)(p, f, FM(set)(0x1.55554ap-2f));
    p = FM(fma)(p, f, FM(set)(-0.5f));
    p = FM(mul)(p, FM(mul)(f, f));
    p = FM(fma)(kf, FM(set)(0x1.7f7d1cp-20f), p);
    p = FM(add)(p, f);
    p = FM(fma)(kf, FM(set)(0x1.62e4p-1f), p);
    p = FM(select)(FM(less)(x, infinity), p, x);
    FM_F special = FM(select)(FM(less)(x, zero), FM(set)(__builtin_nanf("")), FM(sub)(x, infinity));
    return FM(select)(FM(less)(zero, x), p, special);
}

/* tanh(a) = m / (m + 2), m = e^2a - 1, for a = |x|. */
SYI_INLINE FM_F FM(tanh)(FM_F x)
{
    FM_I sign = FM(iand)(FM(bits)(x), FM(iset)((int32_t)0x80000000u));
    FM_F n, r, a = FM(real)(FM(iand)(FM(bits)(x), FM(iset)(0x7fffffff)));
    a = FM(min)(FM(set)(10.0f), a);
    FM(reduce)(FM(add)(a, a), &n, &r);
    FM_F p = FM(fma)(FM(exp_tail)(r), FM(mul)(r, r), r);
    FM_F s = FM(power)(n);
    FM_F m = FM(fma)(s, p, FM(sub)(s, FM(set)(1.0f)));
    FM_F y = FM(div)(m, FM(add)(m, FM(set)(2.0f)));
    return FM(real)(FM(ior)(FM(bits)(y), sign));
}

/* Of the angle of turns / 2^32 turns. The nearest quarter turn is taken off in whole numbers, so no digit is
 * lost before the rounding of what is left, r of at most 1/8. */
SYI_INLINE void FM(sin_cos)(FM_I turns, FM_F *sin, FM_F *cos)
{
    const FM_F zero = FM(set)(0.0f);
    FM_I quarter = FM(isra)(FM(iadd)(turns, FM(iset)(0x20000000)), 30), odd = FM(iand)(quarter, FM(iset)(1));
    FM_F r = FM(mul)(FM(convert)(FM(isub)(turns, FM(ishl)(quarter, 30))), FM(set)(0x1p-32f));
    FM_F z = FM(mul)(r, r);
    /* (sin(2 pi r) - 2 pi r) / r^3: degree 2 in z; (cos(2 pi r) - 1) / z: degree 3; minimax (own fit). The
     * digits of 2 pi that its float lacks go with the small terms. */
    FM_F s = FM(fma)(FM(set)(-0x1.2dd048p+6f), z, FM(set)(0x1.466032p+6f));
    s = FM(fma)(s, z, FM(set)(-0x1.4abbccp+5f));
    s = FM(fma)(s, z, FM(set)(-0x1.777a5cp-23f));
    s = FM(fma)(r, FM(set)(0x1.921fb6p+2f), FM(mul)(r, s));
    FM_F c = FM(fma)(FM(set)(0x1.d9f7bcp+5f), z, FM(set)(-0x1.55c664p+6f));
    c = FM(fma)(c, z, FM(set)(0x1.03c1dep+6f));
    c = FM(fma)(c, z, FM(set)(-0x1.3bd3ccp+4f));
    c = FM(fma)(c, z, FM(set)(1.0f));
    /* Odd quarters exchange the two; bit 1 of the quarter, and of the next for cos, is the sign. */
    FM_F y = FM(select)(FM(less)(zero, FM(convert)(odd)), c, s);
    FM_F x = FM(select)(FM(less)(zero, FM(convert)(odd)), s, c);
    FM_I next = FM(iadd)(quarter, FM(iset)(1));
    *sin = FM(real)(FM(iadd)(FM(bits)(y), FM(ishl)(FM(iand)(quarter, FM(iset)(2)), 30)));
    *cos = FM(real)(FM(iadd)(FM(bits)(x), FM(ishl)(FM(iand)(next, FM(iset)(2)), 30)));
}

/* Two standard normal numbers of two random words, by Box and Muller: radius sqrt(-2 log u) at the angle of
 * `turns`; u = (word + 1/2) / 2^32, rounded once, is never 0 and has all its digits where it is small, so the
 * largest radii are as frequent as they should be. */
SYI_INLINE void FM(normal_pair)(FM_I word, FM_I turns, FM_F *a, FM_F *b)
{
    FM_F high = FM(convert)(FM(iand)(FM(isra)(word, 16), FM(iset)(0xffff))), sin, cos;
    FM_F low = FM(add)(FM(convert)(FM(iand)(word, FM(iset)(0xffff))), FM(set)(0.5f)); /* exact */
    FM_F u = FM(fma)(high, FM(set)(0x1p-16f), FM(mul)(low, FM(set)(0x1p-32f)));
    FM_F radius = FM(sqrt)(FM(mul)(FM(set)(-2.0f), FM(log)(u)));
    FM(sin_cos)(turns, &sin, &cos);
    *a = FM(mul)(radius, cos);
    *b = FM(mul)(radius, sin);
}

#endif

/* 1 / (1 + e^-z): the factor of silu (z = x) and of gelu (z below). `minus_z` is -z. */
SYI_INLINE FM_F FM(logistic)(FM_F minus_z)
{
    const FM_F one = FM(set)((FM_S)1);
    return FM(div)(one, FM(add)(one, FM(exp)(minus_z)));
}

/* gelu, tanh approximation: x/2 (1 + tanh(u)) = x / (1 + e^-2u), 2u = x (c1 + c3 x^2), c1 = 2 sqrt(2 / pi),
 * c3 = 0.044715 c1. */
#define FM_GELU_C1 1.59576912160573071175978423974
#define FM_GELU_C3 0.0713548162726002487763387522799
/* Where e^-z overflows on one side and vanishes beside 1 on the other, in float and in double. */
#define FM_GELU_FLAT (FM_S)32
#define FM_SILU_FLAT (FM_S)1024

SYI_INLINE FM_F FM(gelu_minus_z)(FM_F x)
{
    return FM(mul)(x, FM(fma)(FM(set)((FM_S)-FM_GELU_C3), FM(mul)(x, x), FM(set)((FM_S)-FM_GELU_C1)));
}

/* kind: enum sy_activation, 0 linear, 1 relu, 2 gelu, 3 silu. */
SYI_INLINE FM_F FM(activation)(FM_F x, int kind)
{
    const FM_F zero = FM(set)((FM_S)0);
    switch (kind) {
    case 1: return FM(max)(zero, x);
    case 2: return FM(mul)(x, FM(logistic)(FM(gelu_minus_z)(x)));
    case 3: return FM(mul)(x, FM(logistic)(FM(sub)(zero, x)));
    default: return x;
    }
}

/* The derivative at x; *value: the activation, the same bits as above. The clamps keep infinities out where
 * the logistic factor is exactly 0 or 1, so they change no other bit. */
SYI_INLINE FM_F FM(activation_both)(FM_F x, int kind, FM_F *value)
{
    const FM_F zero = FM(set)((FM_S)0), one = FM(set)((FM_S)1);
    FM_F near, s, slope;
    switch (kind) {
    case 1: *value = FM(max)(zero, x); return FM(select)(FM(less)(zero, x), one, zero);
    case 2:
        near = FM(min)(FM(set)(FM_GELU_FLAT), FM(max)(FM(set)(-FM_GELU_FLAT), x));
        s = FM(logistic)(FM(gelu_minus_z)(near));
        slope = FM(fma)(FM(set)((FM_S)(3 * FM_GELU_C3)), FM(mul)(near, near), FM(set)((FM_S)FM_GELU_C1));
        slope = FM(mul)(near, slope);
        break;
    case 3:
        near = FM(min)(FM(set)(FM_SILU_FLAT), FM(max)(FM(set)(-FM_SILU_FLAT), x));
        s = FM(logistic)(FM(sub)(zero, near));
        slope = near;
        break;
    default: *value = x; return one;
    }
    *value = FM(mul)(x, s);
    return FM(mul)(s, FM(fma)(slope, FM(sub)(one, s), one));
}

SYI_INLINE FM_F FM(activation_grad)(FM_F x, int kind)
{
    FM_F value;
    return FM(activation_both)(x, kind, &value);
}

#undef FM_GELU_C1
#undef FM_GELU_C3
#undef FM_GELU_FLAT
#undef FM_SILU_FLAT
