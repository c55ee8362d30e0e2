/** The page about errors. reference.test.ts has the pages about errors that a server shows. */

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERRORS } from '../../../src/core/errors.ts';
import { errorSections } from '../../../tools/docs/errors.ts';
import { useDataDirectory } from '../../support/data-directory.ts';
import { sendRequest } from '../../support/http.ts';

const own = useDataDirectory(['--acceptors', '1', '--counters', '1024']);

test('the documentation has a section for each code, in the order of the table', () => {
  const headings = [...errorSections().matchAll(/^### (.*)$/gm)].map(([, heading]) => heading);
  expect(headings).toEqual(Object.keys(ERRORS));
});

test('the examples of the page are the responses of a server', async () => {
  const page = readFileSync(new URL('../../../docs/errors.md', import.meta.url), 'utf8');
  const examples = [...page.matchAll(/```json\n(.*?)```/gs)].map(([, json]) => JSON.parse(json));
  const request = { namespace: 'api', identifier: 'user_1', limit: 10, duration: 60 };
  const server = await own.start();
  const sent = ['/v1/ratelimits.limit', '/v2/ratelimit.limit'].map(async (path) => {
    const { body } = await sendRequest(server.port, { path, body: JSON.stringify(request) });
    return JSON.parse(body.replaceAll(server.url, 'http://127.0.0.1:7070'));
  });
  const [v1, v2] = await Promise.all(sent);
  v1.error.requestId = examples[0].error.requestId;
  v2.meta.requestId = examples[1].meta.requestId;
  expect(examples).toEqual([v1, v2]);
});
