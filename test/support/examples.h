/* Examples of fine-tuning and texts, as tokens. */
#ifndef TEST_SUPPORT_EXAMPLES_H
#define TEST_SUPPORT_EXAMPLES_H

#include <lockstep/data.h>

/* Writes lines of {"prompt": ..., "completion": ...} to FOLDER/NAME.jsonl and makes the store
 * FOLDER/NAME_train of them: bytes are tokens, and each example ends with a token of its own. Fails
 * the test, or ends a program that is none, where that cannot be. */
struct ls_prepare_report examples_prepare(const char *folder, const char *name, const char *lines);
/* The same of lines of {"text": ...}. */
struct ls_prepare_report texts_prepare(const char *folder, const char *name, const char *lines);

#endif
