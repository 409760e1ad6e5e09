/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, said to the host in one line. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "backends/mpi/mpi_backend.h"

int sympi_fail(const struct sympi *mpi, const char *format, ...)
{
    char line[SYMPI_TEXT + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mpi->host->error(mpi->host->arg, line);
    return SY_EBACKEND;
}

int sympi_fail_code(const struct sympi *mpi, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int bytes = 0;
    MPI_Error_string(code, text, &bytes);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    return sympi_fail(mpi, "rank %d of %d: %s: MPI says: %.600s", mpi->rank, mpi->ranks, call, text);
}
