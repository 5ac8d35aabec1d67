/* Whether a text is well-formed XML: enough of it for what this project writes. */
#ifndef TEST_SUPPORT_XML_H
#define TEST_SUPPORT_XML_H

#include <stdbool.h>
#include <stddef.h>

/* One element, no doctype: tags nest, attributes are quoted and come once, ampersands are entities
 * (&lt; &gt; &amp; &quot; or a number). On false, why[size] says what and near what. */
bool xml_is_well_formed(const char *text, char *why, size_t size);

/* Fails the test with the reason. */
void assert_xml(const char *text);

#endif
