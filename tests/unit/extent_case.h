/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over extents of any size together, for the tests of that: every fast kernel against the reference in float32, and
 * against the reference between conversions where operands are bfloat16. */
#ifndef EXTENT_CASE_H
#define EXTENT_CASE_H

#include "base/bf16.h"
#include "tests/unit/kernel_harness.h"

/* The fast kernels for these dtypes against the portable one, which takes most of the time and is run once; what is only portable
 * by its threads. 3 threads, in float32 1 as well. The outputs are left in k->want (kh_forget). */
static inline void kh_check_fast(struct kh *k, int in_dtype, int out_dtype, const char *what)
{
    const int full = in_dtype == SY_F32 && out_dtype == SY_F32;
    const uint32_t features = full ? kh_features() : kh_widening_features();
    const struct sy_kernel *kernel;
    int n = 0;
    kh_run(k, kh_portable(k->op, in_dtype, out_dtype), 1, k->want, what);
    for (uint64_t at = 0; (kernel = kh_next(k->op, in_dtype, out_dtype, features, &at)); n++)
        for (int threads = full ? 1 : 3; (kernel->needs || !n) && threads <= 3; threads += 2)
            kh_compare(k, kernel, threads, what);
}

static inline void kh_forget(struct kh *k)
{
    for (int i = 0; i < k->n_out; i++) kh_free_guarded(k->want[i]), k->want[i] = NULL;
    kh_end(k);
}

/* The same call with operands of these dtypes. 0: none of them is changed by one of the two. */
static inline int kh_half_of(const struct kh *k, int in_dtype, int out_dtype, struct kh *half)
{
    int inputs = 0, outputs = 0;
    *half = *k;
    memset(half->want, 0, sizeof half->want);
    for (int i = 0; i < k->n_in; i++) {
        const struct sy_tensor *from = &k->in[i];
        struct sy_tensor *to = &half->in[i];
        int floating = from->data && in_dtype == SY_BF16 && kh_is_floating(k, i, from->dtype);
        if (!from->data) continue;
        if (floating) inputs = 1, to->dtype = SY_BF16;
        to->data = malloc(kh_bytes(to) + 1);
        cr_assert_not_null(to->data);
        if (!floating) memcpy(to->data, from->data, kh_bytes(to));
        for (int64_t e = 0; floating && e < sycpu_count(from); e++)
            ((uint16_t *)to->data)[e] = syi_bf16_from_float(((const float *)from->data)[e]);
    }
    for (int i = 0; i < k->n_out; i++)
        if (out_dtype == SY_BF16 && k->out[i].rank && kh_is_floating(k, k->n_in + i, k->out[i].dtype))
            outputs = 1, half->out[i].dtype = SY_BF16;
    return inputs == (in_dtype == SY_BF16) && outputs == (out_dtype == SY_BF16);
}

/* In float32, whose outputs are left in k->want, and with inputs, outputs or both in bfloat16. */
static inline void kh_check_types(struct kh *k, const char *what)
{
    kh_check_fast(k, SY_F32, SY_F32, what);
    for (int i = 1; i < 4; i++) {
        const int in = i & 1 ? SY_BF16 : SY_F32, out = i & 2 ? SY_BF16 : SY_F32;
        struct kh half;
        if (kh_half_of(k, in, out, &half)) kh_check_fast(&half, in, out, what);
        kh_forget(&half);
    }
}

#endif
