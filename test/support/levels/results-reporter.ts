/** Results as JSON, with the number of errors outside of all tests, which vitest's reporter omits. */

import { JsonReporter, type TestModule } from 'vitest/node';

export default class ResultsReporter extends JsonReporter {
  #unhandledErrors = 0;

  override async onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly unknown[] = [],
  ): Promise<void> {
    this.#unhandledErrors = unhandledErrors.length;
    await super.onTestRunEnd(modules);
  }

  override async writeReport(report: string): Promise<void> {
    const results = { ...JSON.parse(report), unhandledErrors: this.#unhandledErrors };
    await super.writeReport(JSON.stringify(results));
  }
}
