/* lockstep/base/hub.h - models of the Hugging Face hub, which no command downloads. */
#ifndef LOCKSTEP_BASE_HUB_H
#define LOCKSTEP_BASE_HUB_H

#include <lockstep/base/linkage.h>

#include <stddef.h>

LS_C_BEGIN

enum { LS_HUB_HINT_BYTES = 512 };
/* What to do about a path that is not there: "; a model of the Hugging Face hub must be downloaded
 * first: hf download ORG/NAME --local-dir NAME" if it may be such a name, otherwise "". Local. */
void ls_hub_hint(const char *path, char text[LS_HUB_HINT_BYTES]);
/* Of a file that begins with text[bytes]: "a pointer of Git LFS, ..., and what to do" if a clone
 * without git-lfs left such in place of the file; otherwise NULL. Local. */
const char *ls_lfs_pointer(const char *text, size_t bytes);

LS_C_END

#endif
