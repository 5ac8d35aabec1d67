/* A configuration from one text. */
#ifndef TEST_SUPPORT_CONFIG_WORDS_H
#define TEST_SUPPORT_CONFIG_WORDS_H

#include <lockstep/train.h>

/* The configuration of words such as "model.layers=2", with spaces between them, resolved. Fails
 * the test where it is refused. */
struct ls_config config_of_words(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
