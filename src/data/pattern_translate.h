/* data/pattern_translate.h - a pattern in the syntax of PCRE2. */
#ifndef DATA_PATTERN_TRANSLATE_H
#define DATA_PATTERN_TRANSLATE_H

#include "data/tokenizer_private.h"

/* out is zero before and is to be released, also after an error. unoptimized: the pattern has what
 * the optimized search of PCRE2 10.42 is wrong about. LS_ENOTSUP names what is not supported. */
int pattern_translate(const char *pattern, enum data_pattern_syntax syntax, struct ls_text *out,
                      bool *unoptimized, struct ls_error *error);

#endif
