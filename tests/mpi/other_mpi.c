/* SPDX-License-Identifier: Apache-2.0 */
/* What a library of another MPI looks like to the backend: preloaded, it says that it is one. */
#include "config.h"

#include <stdio.h>

#include "switchyard/switchyard.h" /* SY_API */

SY_API int MPI_Get_library_version(char *text, int *bytes);

int MPI_Get_library_version(char *text, int *bytes)
{
    *bytes = sprintf(text, "Other MPI v9.8.7, made for a test");
    return 0;
}
