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

#endif
