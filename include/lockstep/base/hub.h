/* lockstep/base/hub.h - names of models on the Hugging Face hub, which no command downloads. */
#ifndef LOCKSTEP_BASE_HUB_H
#define LOCKSTEP_BASE_HUB_H

#include <lockstep/base/linkage.h>

LS_C_BEGIN

enum { LS_HUB_HINT_BYTES = 512 };
/* What to do about a path that is not there: "; a model of the Hugging Face hub must be downloaded
 * first: hf download ORG/NAME --local-dir NAME" if it may be such a name, otherwise "". Local. */
void ls_hub_hint(const char *path, char text[LS_HUB_HINT_BYTES]);

LS_C_END

#endif
