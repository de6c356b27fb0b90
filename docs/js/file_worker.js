/* Browsers start no worker for a page that is a file; the search then runs in a hidden frame. */
if (location.protocol === "file:")
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const load = address => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = failed;
        inside.document.body.append(script);
      });
      inside.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address);
      };
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(
        new MessageEvent("message", {data})));
    }

    terminate() { this.frame.remove(); }
  };
