/* SPDX-License-Identifier: Apache-2.0 */
/* backends/cuda/loss.cu for the host's compiler. */
#include "tests/cuda/emulation.h"

#include "backends/cuda/loss.cu"
