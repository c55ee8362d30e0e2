/** The operations as files of the repository, and as parts of the bundle. */

import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { COUNTER_OPERATION_NAMES } from '../../../src/api/operations/counter-operations.ts';
import { DOCUMENTED } from '../../../src/api/operations/documentation.ts';
import { OPERATION_NAMES } from '../../../src/api/operations/main-operations.ts';
import { PolicySchema } from '../../../src/policies/policy.ts';

const path = (of: string) => new URL(`../../../${of}`, import.meta.url);
const namesOf = (folder: string) => readdirSync(path(folder));

/** All descriptions in a schema. */
function descriptionsIn(schema: unknown): string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  return Object.entries(schema).flatMap(([name, value]) => {
    return name === 'description' && typeof value === 'string' ? [value] : descriptionsIn(value);
  });
}

test('every operation is documented once', () => {
  const names = DOCUMENTED.map(({ name }) => name);
  expect(names.toSorted()).toEqual([...OPERATION_NAMES, ...COUNTER_OPERATION_NAMES].sort());
});

test.each(['v1', 'v2'])('each file in %s is named after its operation', (version) => {
  const expected = DOCUMENTED.filter((operation) => operation.version === version)
    .map(({ name }) => {
      const [subject, action] = name.split('.');
      const words = subject.startsWith('ratelimit') ? action : `${subject}-${action}`;
      return words.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    })
    .flatMap((name) => [`${name}.ts`, `${name}.texts.ts`]);
  expect(namesOf(`src/api/operations/${version}`).sort()).toEqual(expected.sort());
});

test('the bundle of the server has no texts, examples or schemas of responses', () => {
  const bundle = namesOf('dist')
    .filter((name) => name.endsWith('.js'))
    .map((name) => readFileSync(path(`dist/${name}`), 'utf8'))
    .join('\n');
  // As rolldown writes a string without a line break.
  const isLoaded = (text: string) => bundle.includes(JSON.stringify(text));
  const requests = DOCUMENTED.flatMap(({ request }) => descriptionsIn(request));
  expect(requests.filter(isLoaded).length).toBeGreaterThan(20);
  const texts = DOCUMENTED.flatMap(({ summary, description, examples, response }) => {
    const ofExamples = Object.values(examples).map((example) => example.summary);
    return [summary, ...description, ...ofExamples, ...descriptionsIn(response)];
  });
  const others = [...requests, ...descriptionsIn(PolicySchema)];
  const own = texts.filter((text) => text.length > 30 && !others.includes(text));
  expect(own.length).toBeGreaterThan(200);
  expect(own.filter(isLoaded)).toEqual([]);
});
