/** Checks the OpenAPI document with the recommended rules of Redocly's linter. */

import { createConfig, lint } from '@redocly/openapi-core';
import { expect, test } from 'vitest';

const DOCUMENT = new URL('../../../docs/openapi.json', import.meta.url).pathname;

test('the OpenAPI document has no error and no warning', async () => {
  const config = await createConfig({ extends: ['recommended'] });
  const problems = await lint({ ref: DOCUMENT, config });
  const found = problems.map(({ severity, ruleId, message, location }) => {
    return `${severity} ${ruleId}: ${message} ${location[0]?.pointer}`;
  });
  expect(found).toEqual([]);
});
