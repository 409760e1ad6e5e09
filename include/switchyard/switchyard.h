/* SPDX-License-Identifier: Apache-2.0 */
/* switchyard: the public interface, all that an embedding program includes. Opaque handles, status codes, one
 * error structure. Functions return SY_OK or a negative status and, where they take a struct sy_error, say
 * why in one line. Nothing here prints, exits or aborts. */
#ifndef SWITCHYARD_H
#define SWITCHYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define SY_API __attribute__((visibility("default")))
#else
#    define SY_API
#endif

/* Status codes: X(name, number, text). Numbers are final. */
#define SY_STATUS_MAP(X)                                                                                     \
    X(OK, 0, "success")                                                                                      \
    X(ENOMEM, -1, "out of memory")                                                                           \
    X(EINVAL, -2, "invalid argument or configuration")                                                       \
    X(EIO, -3, "input or output failed")                                                                     \
    X(EFORMAT, -4, "malformed file")                                                                         \
    X(ENOENT, -5, "not found")                                                                               \
    X(EEXIST, -6, "exists already")                                                                          \
    X(EBUSY, -7, "in use by another process")                                                                \
    X(EBACKEND, -8, "backend refused or failed")                                                             \
    X(EUNSUPPORTED, -9, "not supported by this build or backend")                                            \
    X(EMISMATCH, -10, "does not fit the model")                                                              \
    X(ENUMERIC, -11, "not a finite number")                                                                  \
    X(EINTERNAL, -12, "internal check failed")                                                               \
    X(ESTOPPED, -13, "stopped on request")

enum sy_status {
#define SY_STATUS_ENUM(name, number, text) SY_##name = number,
    SY_STATUS_MAP(SY_STATUS_ENUM)
#undef SY_STATUS_ENUM
};

/* What went wrong; zero it before use. The first error written stays. */
struct sy_error {
    int code;        /* enum sy_status */
    char text[1024]; /* one line: what, where, what to try */
};

SY_API const char *sy_status_text(int status);
SY_API const char *sy_version(void); /* "0.1.0" */

enum sy_log_level { SY_LOG_DEBUG, SY_LOG_INFO, SY_LOG_WARN };
typedef void (*sy_log_fn)(void *arg, enum sy_log_level level, const char *line);
/* Where log lines go; NULL (the start value) drops them. Not thread-safe against running work. */
SY_API void sy_log_set(sy_log_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
