/* SPDX-License-Identifier: Apache-2.0 */
/* How functions of headers are declared that kernels of every device call: in CUDA's language they exist on
 * both sides. */
#ifndef SYI_INLINE_H
#define SYI_INLINE_H

#ifdef __CUDACC__
#    define SYI_INLINE static inline __host__ __device__
#else
#    define SYI_INLINE static inline
#endif

/* Where sizes, kinds or dtypes are constants only after inlining. Also for functions that only prefetch: gcc takes a call of one
 * for dead. tests/sources.sh looks at those named so. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#endif
