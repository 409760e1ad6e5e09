/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard version */
#include "config.h"

#include <stdio.h>

#include "base/compress.h"
#include "cli/cli.h"
#include "switchyard/backend.h"

int cli_version(const struct cli_options *options)
{
    (void)options;
    printf("switchyard %s\nplugin ABI %d.%d\ncompiler %s\ncompressed files %s\n", sy_version(), SY_ABI_MAJOR,
           SY_ABI_MINOR, __VERSION__, syi_compression_libraries());
    return CLI_DONE;
}
