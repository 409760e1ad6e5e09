/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a run's database: made where there are none, brought to the present version where they are older. */
#ifndef SYI_SCHEMA_H
#define SYI_SCHEMA_H

#include "metrics/database.h"

enum {
    SYI_SCHEMA_VERSION = 7,
    SYI_SCHEMA_APPLICATION = 0x53594d44
}; /* user_version, application_id of schema.sql */

/* SY_EFORMAT: tables of this version (user_version) can neither be read nor brought to the present one. */
int syi_schema_check_version(const char *path, int64_t version, struct sy_error *err) SYI_MUST_CHECK;
/* Within the caller's transaction. SY_EFORMAT: another program's database, or of a version that this program cannot
 * bring to its own. */
int syi_schema_prepare(const struct syi_database *database, struct sy_error *err) SYI_MUST_CHECK;

#endif
