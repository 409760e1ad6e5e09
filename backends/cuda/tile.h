/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles in shared memory, of which a thread multiplies 4 rows by 4 columns: four floats are one access of 16 bytes.
 * Used by products and attention. */
#ifndef SYCUDA_TILE_H
#define SYCUDA_TILE_H

#include "backends/cuda/four.h"

/* Elements of 4 rows and 4 columns that a thread sums up. */
struct sycuda_sums {
    float at[4][4];
};

/* Rows of a matrix in the device's memory: row r begins at x + r * step. */
template <class T> struct sycuda_rows {
    const T *x;
    int64_t step, n; /* elements from one row to the next; rows that there are */
    int64_t width;   /* elements that there are of a row */
};

/* Columns first .. first + WIDTH - 1 of `count` rows go to `tile`, `step` floats a row; +0 where there is no element.
 * mask: what the elements of a row are multiplied by as SYI_DROP says, or NULL. */
template <int WIDTH, class T>
__device__ static inline void sycuda_load_rows(float *tile, int step, sycuda_rows<T> rows, int count,
                                               int64_t first, const float *mask)
{
    for (int i = (int)threadIdx.x; i < count * WIDTH; i += (int)blockDim.x) {
        const int row = i / WIDTH, column = i % WIDTH;
        float value = 0;
        if (row < rows.n && first + column < rows.width)
            value = sycuda_read(rows.x + row * rows.step + first + column);
        if (mask) value = SYI_DROP(value, mask[row]);
        tile[row * step + column] = value;
    }
}

#endif
