/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the fast kernels of the instruction set SYCPU_ISA. Without include guard: cpu.c includes it once for
 * each instruction set. */
#include "backends/cpu/cpu.h"
#include "backends/cpu/fast_names.h"

sycpu_run fast_add_rms_norm, fast_argmax, fast_attention, fast_attention_grad, fast_block_max, fast_block_sum,
    fast_block_sumsq, fast_cache_append, fast_cache_gather, fast_column_sum, fast_combine, fast_combine_grad,
    fast_dispatch, fast_dispatch_grad, fast_embed, fast_embed_grad, fast_glu, fast_glu_grad, fast_lay_out,
    fast_lay_out_both, fast_lay_out_nt, fast_map, fast_map_sums, fast_max_axis, fast_normal, fast_pack,
    fast_product, fast_rms_norm, fast_rms_norm_grad, fast_softmax, fast_softmax_grad, fast_tree_add,
    fast_tree_axis, fast_unpack, fast_xent, fast_xent_grad;
sycpu_workspace fast_attention_workspace, fast_attention_grad_workspace, fast_combine_grad_workspace,
    fast_dispatch_workspace, fast_embed_grad_workspace, fast_product_workspace, fast_rms_norm_grad_workspace;
sycpu_prepare fast_map_prepare, fast_map_sums_prepare, fast_product_prepare;
