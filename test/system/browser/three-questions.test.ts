/**
 * Three questions of an operator in a hurry. The dashboard answers each with at most two clicks
 * after the sign-in. The page counts the clicks: a press of Enter in a field is none.
 */

import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT_KEY } from '../../support/server.ts';
import { useServer } from '../../support/test-server.ts';
import { isChromiumMissing, launchChromium } from './chromium.ts';
import { ABUSER, CUSTOMER, sendTraffic } from './traffic.ts';

const CLICKS_MAX = 2;

/** A click by a mouse begins with this event, and one by Enter in a form does not. */
const COUNT_CLICKS = `
  globalThis.clicks = 0;
  addEventListener('pointerdown', () => clicks++, { capture: true });
`;

describe.skipIf(isChromiumMissing)('the dashboard answers in two clicks', () => {
  const server = useServer();
  let browser: Browser;
  beforeAll(async () => {
    await sendTraffic(server);
    browser = await launchChromium();
  });
  afterAll(() => browser?.close());

  /** Signs in, and answers a question. The clicks of the sign-in do not count. */
  async function answer(question: string, steps: (page: Page) => Promise<void>): Promise<void> {
    const page = await browser.newPage({ viewport: { width: 1_440, height: 900 } });
    await page.addInitScript(COUNT_CLICKS);
    await page.goto(server.adminUrl);
    await page.getByLabel('API key').fill(ROOT_KEY);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    expect(await page.evaluate('clicks')).toBe(0);
    const begin = performance.now();
    await steps(page);
    const seconds = ((performance.now() - begin) / 1_000).toFixed(1);
    const clicks = await page.evaluate<number>('clicks');
    console.log(`${question} ${clicks} clicks, ${seconds} s`);
    expect(clicks).toBeLessThanOrEqual(CLICKS_MAX);
    await page.close();
  }
  const view = (page: Page, name: string) => {
    return page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
  };
  const see = (page: Page, text: string | RegExp) => page.getByText(text).first().waitFor();

  test('why a customer is denied of whom only the identifier is known', async () => {
    const { identifier, namespace, limit } = CUSTOMER;
    await answer('Why is the customer denied?', async (page) => {
      await page.keyboard.press('/');
      await page.keyboard.type(identifier);
      await page.keyboard.press('Enter');
      const places = page.getByRole('table', { name: /^The latest denial first/ });
      // The first row below the headings.
      const first = places.getByRole('row').nth(1);
      await first.getByText(`${limit} of ${limit} used`).waitFor();
      await first.getByRole('link', { name: namespace, exact: true }).click();
      const answered = page.getByRole('region', { name: 'Next check' });
      const reason = new RegExp(`^The check is denied: .* has 0 of ${limit} tokens left`);
      await answered.getByText(reason).waitFor();
      await see(page, `by a limit of ${limit} of the request`);
      await see(page, 'No override matches.');
    });
  });

  test('which identifier of all namespaces is denied most often', async () => {
    const { identifier, namespace, denied } = ABUSER;
    await answer('Who is denied most often?', async (page) => {
      await view(page, 'Identifier');
      const ranking = page.getByRole('table', { name: 'Most denied identifiers' });
      const first = ranking.getByRole('row').nth(1);
      await first.waitFor();
      expect(await first.getByRole('rowheader').textContent()).toBe(identifier);
      const cells = await first.getByRole('cell').allTextContents();
      expect(cells.slice(0, 2)).toEqual([namespace, String(denied)]);
    });
  });

  test('whether the limiter is healthy, its last hour and its p99', async () => {
    await answer('Is the limiter healthy?', async (page) => {
      const status = page.locator('.figure').filter({ hasText: 'Status' });
      await status.getByText('ready', { exact: true }).waitFor();
      // Both charts begin with the minutes before the page was opened.
      const byMinute = page.getByText('by minute, the live part by second');
      await expect.poll(() => byMinute.count()).toBe(2);
      const lastHour = page.getByRole('row', { name: /^last 1 h/ });
      await expect.poll(() => lastHour.getByRole('cell').nth(3).textContent()).toMatch(/\d/);
    });
  });
});
