export interface Notice {
  id: number;
  kind: 'done' | 'error';
  text: string;
}

/** Short messages at the edge of the page. Errors stay until they are closed. */
class Notices {
  all: Notice[] = $state([]);
  #number = 0;

  add(kind: Notice['kind'], text: string) {
    const id = ++this.#number;
    this.all.push({ id, kind, text });
    if (kind === 'done') setTimeout(() => this.close(id), 6000);
  }

  close(id: number) {
    this.all = this.all.filter((notice) => notice.id !== id);
  }
}

export const notices = new Notices();
