/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI plugin: collectives of processes that mpirun or srun started. It is built for one MPI and refuses
 * the library of another; it computes nothing. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/mpi/mpi_backend.h"

enum { SECONDS = 600 }; /* a wait may last, unless SWITCHYARD_COMM_TIMEOUT says otherwise */

/* ---- the library ---- */

/* "Open MPI v4.1.4", "MPICH Version: 4.0.2": name and version are the beginning of the first line. */
static void library_name(char *text)
{
    text[strcspn(text, ",\n")] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' ';
}

static int check_library(const struct sympi *mpi)
{
    char here[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "", built[] = SYMPI_LIBRARY;
    int bytes = 0;
    MPI_Get_library_version(here, &bytes);
    library_name(here);
    library_name(built);
    if (!built[0] || strcmp(here, built) == 0) return SY_OK;
    return sympi_fail(
        mpi,
        "built for \"%s\", but the MPI library found here is \"%s\": load the other one (module, "
        "LD_LIBRARY_PATH), or configure with MPICC= of this one and build again",
        built, here);
}

static int initialise(struct sympi *mpi)
{
    int is_on = 0, was_on = 0, level = MPI_THREAD_SINGLE, code = MPI_SUCCESS;
    MPI_Initialized(&is_on);
    MPI_Finalized(&was_on);
    if (was_on) return sympi_fail(mpi, "MPI was finalized in this process and cannot be started again");
    if (is_on) {
        MPI_Query_thread(&level);
    } else {
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "MPI_Init_thread", code);
        mpi->initialised = 1;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->world);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->control);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(mpi->world, &mpi->rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(mpi->world, &mpi->ranks);
    if (code == MPI_SUCCESS && mpi->ranks > 1)
        code = MPI_Irecv(&mpi->stop_from, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->control,
                         &mpi->stop_recv);
    if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "opening MPI", code);
    if (level >= MPI_THREAD_SERIALIZED) return sympi_thread_start(mpi);
    mpi->host->log(mpi->host->arg, SY_LOG_WARN,
                   "this MPI serves one thread only: collectives do not overlap with compute");
    return SY_OK;
}

/* ---- open and close ---- */

static int probe(const struct sy_host *host, int *score, char *text, size_t text_bytes)
{
    (void)host;
    *score = 1;
    snprintf(text, text_bytes, "collectives of processes that mpirun or srun starts (--comm mpi)");
    return SY_OK;
}

static int read_timeout(struct sympi *mpi)
{
    const char *text = getenv("SWITCHYARD_COMM_TIMEOUT");
    char *end;
    mpi->timeout = SECONDS;
    if (!text || !*text) return SY_OK;
    long seconds = strtol(text, &end, 10);
    if (*end || seconds < 1 || seconds > 1000000000) {
        sympi_fail(mpi, "SWITCHYARD_COMM_TIMEOUT=%.40s: a whole number of seconds, 1 to 1000000000", text);
        return SY_EINVAL;
    }
    mpi->timeout = (double)seconds;
    return SY_OK;
}

static void context_free(struct sympi *mpi)
{
    pthread_cond_destroy(&mpi->work);
    pthread_mutex_destroy(&mpi->lock);
    free(mpi);
}

static int open(const struct sy_host *host, const struct sy_backend_option *options, void **context,
                uint32_t *features, char *description, size_t description_bytes)
{
    struct sympi *mpi = calloc(1, sizeof *mpi);
    if (!mpi) return SY_ENOMEM;
    mpi->host = host;
    pthread_mutex_init(&mpi->lock, NULL);
    pthread_cond_init(&mpi->work, NULL);
    int status = options->key ? SY_EINVAL : read_timeout(mpi);
    if (options->key) sympi_fail(mpi, "option %.80s: there are none", options->key);
    if (!status) status = check_library(mpi);
    if (!status) status = initialise(mpi);
    if (status) {
        context_free(mpi);
        return status;
    }
    *context = mpi;
    *features = 0;
    snprintf(description, description_bytes, "rank %d of %d", mpi->rank, mpi->ranks);
    return SY_OK;
}

/* After a failure MPI is left as it is: collectives that never become complete are under way in it. */
static void close(void *context)
{
    struct sympi *mpi = context;
    sympi_thread_end(mpi);
    if (mpi->alone) MPI_Abort(MPI_COMM_WORLD, 1); /* ends those that did not come */
    if (!mpi->concluded) {
        if (mpi->ranks > 1) {
            MPI_Cancel(&mpi->stop_recv);
            MPI_Wait(&mpi->stop_recv, MPI_STATUS_IGNORE);
        }
        MPI_Comm_free(&mpi->control);
        MPI_Comm_free(&mpi->world);
        if (mpi->initialised) MPI_Finalize();
    }
    context_free(mpi);
}

SY_API extern const struct sy_backend_desc sy_backend_mpi;
const struct sy_backend_desc sy_backend_mpi = {
    SY_BACKEND_HEAD(12),
    .caps = SY_CAP_COLLECTIVES,
    .name = "mpi",
    .version = PACKAGE_VERSION,
    .build = SYMPI_BUILD,
    .probe = probe,
    .open = open,
    .close = close,
    .collectives = &sympi_collectives,
};
