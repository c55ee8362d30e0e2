import { expect, test } from 'vitest';
import { BodyScanner, FIELD } from '../../../src/api/common/body-scanner.ts';
import { CheckRequest } from '../../../src/api/common/check-request.ts';
import { RULE } from '../../../src/core/window-rules.ts';

const BODY = { identifier: 'user_1', limit: 10, duration: 60_000 };
const RULES = {
  requiredFields: FIELD.identifier | FIELD.limit | FIELD.duration,
  optionalFields: 0,
  identifierMinCharacters: 1,
  durationMaxMs: 60_000,
};

test('a check that is read for the next request loses the override id of the request before', () => {
  const scanner = new BodyScanner();
  const check = new CheckRequest(scanner.memory, RULE.sliding, true);
  check.overrideId = 'rlor_1';
  check.setFromBody(BODY, 0);
  expect(check.overrideId).toBeUndefined();
  check.overrideId = 'rlor_1';
  const bytes = new TextEncoder().encode(JSON.stringify(BODY));
  expect(scanner.scanBody(bytes) && check.setFromScan(scanner, RULES)).toBe(true);
  expect(check.overrideId).toBeUndefined();
});
