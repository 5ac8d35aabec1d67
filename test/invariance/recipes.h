/* The recipes that layouts are compared on. */
#ifndef TEST_INVARIANCE_RECIPES_H
#define TEST_INVARIANCE_RECIPES_H

#include <lockstep/train.h>

enum { RECIPES = 19, RECIPE_STEPS_MAX = 64 };
extern const char *const recipe_names[RECIPES];

/* The recipe on one rank; folder holds tokens.bin, examples_train and weighted_train. Ends the
 * program where the recipe itself is wrong. */
void recipe_config(int recipe, const char *folder, struct ls_config *config);
void recipe_tokens_write(const char *folder);

#endif
