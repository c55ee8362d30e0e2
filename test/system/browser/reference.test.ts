/** The API reference and the error pages in Chromium, at widths from a phone to a desktop. */

import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG } from '../../support/guarantees.ts';
import {
  removeDirectory,
  type ServerProcess,
  startServer,
  temporaryDirectory,
} from '../../support/server.ts';
import { accessibilityFaultsOf, isChromiumMissing, launchChromium } from './chromium.ts';

/** The error pages have one template. One of these has the longest code. */
const PATHS = ['/docs', '/docs/errors/NOT_FOUND', '/docs/errors/UNSUPPORTED_MEDIA_TYPE'];
const WIDTHS = [360, 768, 1_024, 1_440];
/** axe needs several seconds of CPU for the API reference. */
const AUDIT_MS = 240_000;

const OPEN_EXAMPLES = 'for (const one of document.querySelectorAll("details")) one.open = true';

describe.skipIf(isChromiumMissing)('in Chromium', () => {
  const dataDir = temporaryDirectory();
  let server: ServerProcess;
  let browser: Browser;
  beforeAll(async () => {
    server = await startServer(dataDir, { args: ['--counters', '1024'] });
    browser = await launchChromium();
  });
  afterAll(async () => {
    await browser?.close();
    await server?.stop();
    removeDirectory(dataDir);
  });

  /** Opens a page. @returns it, with all that it reports and requests, also later */
  async function open(path: string, width: number) {
    const page = await browser.newPage({ viewport: { width, height: 800 } });
    const reports: string[] = [];
    const requests: string[] = [];
    page.on('console', (message) => reports.push(message.text()));
    page.on('pageerror', (error) => reports.push(error.message));
    page.on('requestfailed', (request) => reports.push(`failed: ${request.url()}`));
    page.on('request', (request) => requests.push(request.url()));
    await page.goto(server.url + path);
    return { page, reports, requests };
  }

  test.each(PATHS)(
    '%s reports nothing, requests only its style and icon, and does not scroll sideways',
    async (path) => {
      const { page, reports, requests } = await open(path, WIDTHS[0]);
      // Wide lines are in examples that are closed at first.
      await page.evaluate(OPEN_EXAMPLES);
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: 800 });
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
      }
      const own = [path, '/docs/style.css', '/docs/icon.svg'].map((name) => server.url + name);
      expect([...new Set(requests)].toSorted()).toEqual(own.toSorted());
      expect(reports).toEqual([]);
      await page.close();
    },
  );

  test.each(['/docs', '/docs/errors/NOT_FOUND'])(
    'axe finds no accessibility fault: %s, light and dark',
    { timeout: AUDIT_MS },
    async (path) => {
      for (const width of IS_LONG ? WIDTHS : WIDTHS.slice(0, 1)) {
        const { page } = await open(path, width);
        expect([width, await accessibilityFaultsOf(page)]).toEqual([width, []]);
        await page.close();
      }
    },
  );

  test('the first link skips to the content', async () => {
    const { page } = await open('/docs', 1_440);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect(await page.evaluate('document.activeElement.id')).toBe('content');
    await page.close();
  });
});
