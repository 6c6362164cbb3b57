"""One module for each question a person asks. Answers are plain records whose field names are the JSON's keys."""
