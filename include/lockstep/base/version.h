/* lockstep/base/version.h - which Lockstep this is, and which bits it gives. */
#ifndef LOCKSTEP_BASE_VERSION_H
#define LOCKSTEP_BASE_VERSION_H

#include <lockstep/base/linkage.h>

LS_C_BEGIN

/* numerics.version: raised by one in every change after which some recipe has other losses or
 * another state's hash, on any instruction set, than before it. A change of speed, of layouts, of
 * formats or of messages leaves it. It is no key: a build gives one version's bits. Checkpoints
 * carry it in their fingerprint. test/train/test_golden.c fails where bits changed and this did not
 * (doc/adr/0018-numerics-version.md). */
enum { LS_NUMERICS_VERSION = 4 };

/* "0.1.0". */
const char *ls_version(void);
/* The git commit that the library was built from: 12 hexadecimal digits, with "-dirty" where the
 * tree had changes; "unknown" if it was no git work tree. */
const char *ls_commit(void);

LS_C_END
#endif
