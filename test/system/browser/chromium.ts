/** The installed Chromium, and what axe finds on its pages. */

import { execFileSync } from 'node:child_process';
import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { isMissing } from '../../support/programs/program.ts';

export const isChromiumMissing = isMissing('chromium', '--version');

export function launchChromium(): Promise<Browser> {
  const path = execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim();
  // Chromium does not start its sandbox for root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath: path, args });
}

/**
 * Audits a page in light colors, and its contrasts also in dark ones. Without `resultTypes` axe also
 * describes each element that passes a rule, of which the API reference has thousands.
 *
 * @returns the accessibility faults
 */
export async function accessibilityFaultsOf(page: Page): Promise<string[]> {
  if ((await page.evaluate('typeof axe')) !== 'object') await page.evaluate(axe.source);
  const faults: string[] = [];
  for (const [colorScheme, more] of [
    ['dark', { runOnly: ['color-contrast'] }],
    ['light', {}],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    const options = JSON.stringify({ resultTypes: ['violations'], ...more });
    const { violations } = await page.evaluate<axe.AxeResults>(`axe.run(${options})`);
    faults.push(...violations.map(({ id, nodes }) => `${colorScheme}: ${id}: ${nodes[0].html}`));
  }
  return faults;
}
