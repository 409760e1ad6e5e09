/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the kernels of an opened backend are: a product of a size that stays in the caches next to a core, which takes
 * some hundredths of a millisecond. Trials of several backends are timed in turn, so that what else the machine does in
 * the meantime is the same for all. */
#ifndef SYI_KERNEL_SPEED_H
#define SYI_KERNEL_SPEED_H

#include "runtime/backend.h"

struct syi_kernel_trial {
    struct syi_backend *backend;    /* borrowed */
    const struct sy_kernel *kernel; /* NULL: there is none, or it works on device memory */
    struct sy_tensor in[2], out;
    struct sy_attr_leaf leaf;
    struct sy_call call;
    double seconds; /* of the fastest call; INFINITY: none yet */
};

/* x w with operands and result of this dtype (enum sy_dtype). The trial is zeroed and stays where it is; close it after a
 * failure, too. */
int syi_kernel_trial_open(struct syi_kernel_trial *trial, struct syi_backend *backend, int dtype,
                          struct sy_error *err) SYI_MUST_CHECK;
/* Some calls; without a kernel none. */
int syi_kernel_trial_run(struct syi_kernel_trial *trial, struct sy_error *err) SYI_MUST_CHECK;
/* FLOP/s of the threads of the backend, what the kernel packs and converts included; 0: nothing was timed. */
double syi_kernel_trial_flops(const struct syi_kernel_trial *trial);
void syi_kernel_trial_close(struct syi_kernel_trial *trial); /* before the backend */

#endif
