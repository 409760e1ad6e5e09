/* SPDX-License-Identifier: Apache-2.0 */
/* backends/cuda/attention_grad_mma.cu for the host's compiler. */
#include "tests/cuda/emulation.h"

#include "backends/cuda/attention_grad_mma.cu"
