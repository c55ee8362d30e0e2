/** The pages that a server shows without a key: the API reference, its parts, and the errors. */

import { ERRORS } from '../../src/core/errors.ts';

export const ERROR_PAGES = Object.keys(ERRORS).map((code) => `/docs/errors/${code}`);

export const PAGE_PATHS = [
  ...['/docs', '/docs/style.css', '/docs/icon.svg', '/openapi.json'],
  ...ERROR_PAGES,
];

/** @returns the paths of the pages that a server does not have, with their statuses */
export async function missingPagesOf(url: string): Promise<string[]> {
  const statuses = PAGE_PATHS.map(async (path) => `${path} ${(await fetch(url + path)).status}`);
  return (await Promise.all(statuses)).filter((line) => !line.endsWith(' 200'));
}
