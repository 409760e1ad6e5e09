/* SPDX-License-Identifier: Apache-2.0 */
/* backends/cuda/map_sums.cu for the host's compiler. */
#include "tests/cuda/emulation.h"

#include "backends/cuda/map_sums.cu"
