/** The form that signs in with an API key. The key is sent once, and not kept. */

import { useState } from 'preact/hooks';
import type { SessionInfo } from '../../observe/dashboard/snapshot.ts';
import { ErrorNote, Field, Note, useAction } from '../common/controls.tsx';
import { signIn } from '../common/operations.ts';
import { ThemeSwitch } from '../common/theme.tsx';

interface SignInProps {
  /** Why the session before is over; '' without one. */
  reason: string;
  onSignedIn: (session: SessionInfo) => void;
}

export function SignIn({ reason, onSignedIn }: SignInProps) {
  const [key, setKey] = useState('');
  const signing = useAction(async () => onSignedIn(await signIn(key.trim())));
  return (
    <main class="sign-in">
      <h1>weir</h1>
      <p>Sign in with an API key. The dashboard shows what the key permits.</p>
      {reason !== '' && signing.error === undefined && (
        <Note kind="info">You are signed out: {reason}.</Note>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void signing.run();
        }}
      >
        <Field
          label="API key"
          type="password"
          name="key"
          required
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
        <ErrorNote error={signing.error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={signing.isRunning}>
            Sign in
          </button>
        </div>
      </form>
      <ThemeSwitch />
    </main>
  );
}
