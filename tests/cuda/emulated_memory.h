/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the emulation: who may touch the memory of the device. */
#ifndef EMULATED_MEMORY_H
#define EMULATED_MEMORY_H

#include "tests/cuda/emulation.h"

/* The memory of the device may be touched between these two; calls nest, also over threads. */
void emulated_open_memory();
void emulated_close_memory();
/* Runs a launch now. */
void emulated_run(const emulated_shape &shape, const std::function<void()> &body);

#endif
