/* SPDX-License-Identifier: Apache-2.0 */
/* backends/cuda/embed.cu for the host's compiler. */
#include "tests/cuda/emulation.h"

#include "backends/cuda/embed.cu"
