/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of checkpoints of other programs, a row each. */
#include "config.h"

#include "import/import.h"

const struct syi_import_format *const syi_import_formats[] = {&syi_import_hf, &syi_import_t5x, NULL};
