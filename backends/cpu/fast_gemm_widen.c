/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of weights that the call has in panels of bf16, as float32, which tiles without bf16 take as they take any other.
 * A panel of the call is as wide as one of avx512; it is several of the others'. */
#include "config.h"

#include "backends/cpu/fast_gemm_parts.h"

#ifndef SYCPU_PAIRS /* whose tiles read the panels where they lie */

/* The upper half of a word is the later element of a pair. */
static void widen_panel(const uint32_t *from, int64_t depth, float *to)
{
    for (int64_t k = 0; k < depth; k += 2, from += SY_PANEL_COLUMNS, to += 2 * TILE_COLUMNS) {
        uint32_t early[TILE_COLUMNS], late[TILE_COLUMNS];
        for (int i = 0; i < TILE_COLUMNS; i++) {
            early[i] = from[i] << 16;
            late[i] = from[i] & 0xffff0000u;
        }
        memcpy(to, early, sizeof early);
        memcpy(to + TILE_COLUMNS, late, sizeof late);
    }
}

void fast_gemm_widen_panels(const struct sycpu_gemm_plan *plan, int64_t expert, int64_t panel, int64_t n,
                            float *to)
{
    const struct sycpu_gemm *gemm = &plan->gemm;
    for (; n > 0; n--, panel++, to += b_panel_size(plan->steps)) {
        int64_t column = panel * TILE_COLUMNS, skip = column % SY_PANEL_COLUMNS;
        const float *from = b_panel_of(gemm, expert, column / SY_PANEL_COLUMNS) + skip;
        widen_panel((const uint32_t *)from, gemm->depth, to);
    }
}
#endif
